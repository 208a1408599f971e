#include "pool.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace fastsample {
namespace {

// One call of parallel_for. Lives on the caller's stack: the call returns when no worker holds it.
struct Call {
  int64_t count;
  void (*task)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  // Guarded by the pool's mutex:
  int wanted = 0;   // workers that may still come
  int present = 0;  // workers that are inside
  Call* following = nullptr;

  void run() {
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(context, i);
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
};

class Pool {
 public:
  void run(Call& call, int helpers) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      hire(helpers);
      call.wanted = helpers;
      call.following = first_;
      first_ = &call;
    }
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
    call.run();
    std::unique_lock<std::mutex> lock(mutex_);
    remove(call);
    done_.wait(lock, [&] { return call.present == 0; });
  }

 private:
  // A machine that refuses a thread only makes the call slower.
  void hire(int wanted) {
    try {
      for (; workers_ < wanted; ++workers_) std::thread(&Pool::serve, this).detach();
    } catch (const std::exception&) {
    }
  }

  void remove(const Call& call) {
    Call** link = &first_;
    while (*link != &call) link = &(*link)->following;
    *link = call.following;
  }

  Call* open_call() const {
    Call* call = first_;
    while (call && call->wanted == 0) call = call->following;
    return call;
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return open_call() != nullptr; });
      Call& call = *open_call();
      --call.wanted;
      ++call.present;
      lock.unlock();
      call.run();
      lock.lock();
      if (--call.present == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Call* first_ = nullptr;  // the calls that run now, the newest first
  int workers_ = 0;
};

// Never destroyed: its workers sleep until the process ends. A forked child has no workers and gets a
// new pool; the old one, whose mutex may be held by a thread that is not there, is left behind.
Pool* pool = nullptr;

void renew_pool() { pool = new Pool; }

Pool& the_pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    renew_pool();
    pthread_atfork(nullptr, nullptr, renew_pool);
  });
  return *pool;
}

}  // namespace

int hardware_threads() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  const unsigned threads = std::thread::hardware_concurrency();
  return threads == 0 ? 1 : static_cast<int>(threads);
}

void parallel_for(int64_t count, int threads, void (*task)(void*, int64_t), void* context) {
  Call call;
  call.count = count;
  call.task = task;
  call.context = context;
  if (threads <= 1) {
    call.run();
  } else {
    the_pool().run(call, threads - 1);
  }
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace fastsample

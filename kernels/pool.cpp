#include "pool.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace fastsample {
namespace {

// Lives on the caller's stack: it stays until no worker holds it.
struct Work {
  int64_t count;
  void (*task)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};
  int helpers = 0;  // workers inside, guarded by the pool's mutex
  std::exception_ptr failure;
  std::mutex failure_mutex;

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
  void run(Work& work, int helpers) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      hire(helpers);
      for (int i = 0; i < helpers; ++i) wanted_.push_back(&work);
    }
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
    work.run();
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto it = wanted_.begin(); it != wanted_.end();) {
      it = *it == &work ? wanted_.erase(it) : it + 1;
    }
    done_.wait(lock, [&] { return work.helpers == 0; });
  }

 private:
  // A machine that refuses a thread only makes the call slower.
  void hire(int wanted) {
    try {
      while (workers_ < wanted) {
        std::thread(&Pool::serve, this).detach();
        ++workers_;
      }
    } catch (const std::system_error&) {
    }
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return !wanted_.empty(); });
      Work* work = wanted_.front();
      wanted_.pop_front();
      ++work->helpers;
      lock.unlock();
      work->run();
      lock.lock();
      if (--work->helpers == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Work*> wanted_;
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
  Work work;
  work.count = count;
  work.task = task;
  work.context = context;
  if (threads <= 1) {
    work.run();
  } else {
    the_pool().run(work, threads - 1);
  }
  if (work.failure) std::rethrow_exception(work.failure);
}

}  // namespace fastsample

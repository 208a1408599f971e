#include "runtime/pool.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace fastsample {
namespace {

// One call of parallel_for, on the caller's stack: it returns only when no worker uses it.
struct Call {
  int64_t count;
  int64_t run_length;
  void (*task)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  // Changed under the pool's mutex:
  int wanted = 0;               // workers that may still join
  std::atomic<int> present{0};  // workers that have joined and not left
  Call* following = nullptr;

  void run() {
    try {
      for (int64_t first; (first = next.fetch_add(run_length, std::memory_order_relaxed)) < count;) {
        const int64_t last = std::min(first + run_length, count);
        for (int64_t i = first; i < last; ++i) task(context, i);
      }
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
};

// Linux may wake a thread on its waker's processor although another one is idle, and leave both there for an entire
// call: in a virtual machine an idle processor can look as if the host had descheduled it. So workers may run on
// the processors that their caller may use, except the one that it is on.
#if defined(__linux__)
class Processors {
 public:
  static Processors without_caller() {
    Processors others;
    const int here = sched_getcpu();
    if (here >= 0 && sched_getaffinity(0, sizeof others.set_, &others.set_) == 0) {
      CPU_CLR(here, &others.set_);
    }
    return others;
  }
  // Sets the affinity of a worker, whose affinity so far is `current`.
  void pin(pthread_t worker, Processors& current) const {
    if (CPU_COUNT(&set_) == 0 || CPU_EQUAL(&set_, &current.set_)) return;
    pthread_setaffinity_np(worker, sizeof set_, &set_);
    current = *this;
  }

 private:
  cpu_set_t set_ = {};
};
#else
struct Processors {
  static Processors without_caller() { return {}; }
  void pin(pthread_t, Processors&) const {}
};
#endif

// Blocks signals, for threads that are started meanwhile: a signal that the program waits for must not be delivered
// to a worker. Those of a fault are left alone, since blocking them is undefined.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &former_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

 private:
  sigset_t former_;
};

// Guarded by the pool's mutex.
struct Worker {
  const pthread_t thread = pthread_self();
  std::condition_variable wake;
  bool called = false;
  Processors processors;
};

// Waking a sleeping caller takes about this long, so the caller may poll as long before it sleeps.
constexpr std::chrono::microseconds kSpinTime{50};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool empties_soon(const std::atomic<int>& present) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 8; ++i) pause();
    if (present.load(std::memory_order_acquire) == 0) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

class Pool {
 public:
  void run(Call& call, int helpers) {
    Worker* called[kMaxThreads];
    const int count = open(call, std::min(helpers, kMaxThreads), called);
    for (int i = 0; i < count; ++i) called[i]->wake.notify_one();
    call.run();
    close(call);
  }

 private:
  // Adds the call, and writes the workers to wake; returns their number.
  int open(Call& call, int helpers, Worker** called) {
    const Processors others = Processors::without_caller();
    const std::lock_guard<std::mutex> lock(mutex_);
    start_workers(helpers);
    call.wanted = helpers;
    call.following = first_;
    first_ = &call;
    int count = 0;
    for (; count < helpers && !idle_.empty(); ++count) {
      Worker* worker = idle_.back();
      idle_.pop_back();
      others.pin(worker->thread, worker->processors);
      worker->called = true;
      called[count] = worker;
    }
    return count;
  }

  void close(Call& call) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      remove(call);
    }
    if (call.present.load(std::memory_order_acquire) == 0 || empties_soon(call.present)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return call.present.load(std::memory_order_relaxed) == 0; });
  }

  // If the system refuses a thread, the call is only slower.
  void start_workers(int wanted) {
    if (workers_ >= wanted) return;
    const BlockedSignals blocked;
    try {
      for (; workers_ < wanted; ++workers_) {
        idle_.reserve(static_cast<size_t>(workers_) + 1);  // so that no worker has to allocate
        std::thread(&Pool::serve, this).detach();
      }
    } catch (const std::exception&) {}
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
    Worker worker;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      while (Call* call = open_call()) {
        --call->wanted;
        call->present.fetch_add(1, std::memory_order_relaxed);
        lock.unlock();
        call->run();
        lock.lock();
        if (call->present.fetch_sub(1, std::memory_order_release) == 1) done_.notify_all();
      }
      idle_.push_back(&worker);
      worker.wake.wait(lock, [&] { return worker.called; });
      worker.called = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Worker*> idle_;  // sleeping workers, the most recently active last
  Call* first_ = nullptr;      // the running calls, the newest first
  int workers_ = 0;
};

// Never destroyed: its workers sleep until the process ends. A forked child has no workers and gets a new pool;
// the old one is leaked, since a thread that does not exist in the child may hold its mutex.
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

// ---- number of threads --------------------------------------------------------------------------------

// 0: no limit but the number of processors.
std::atomic<int> limit{0};

int processors() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  const unsigned threads = std::thread::hardware_concurrency();
  return threads == 0 ? 1 : static_cast<int>(threads);
}

}  // namespace

int max_threads() {
  const int set = limit.load(std::memory_order_relaxed);
  return set > 0 ? set : processors();
}

void limit_threads(int threads) { limit.store(threads, std::memory_order_relaxed); }

void parallel_for(int64_t count, int64_t run_length, int threads, void (*task)(void*, int64_t), void* context) {
  Call call;
  call.count = count;
  call.run_length = run_length;
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

extern "C" {

// Exported by name, for callers that load the library.
__attribute__((visibility("default"))) int fastsample_get_num_threads() { return fastsample::max_threads(); }
__attribute__((visibility("default"))) void fastsample_set_num_threads(int threads) {
  fastsample::limit_threads(threads);
}
}

#include "dispatch.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

#include "pool.hpp"

namespace fastsample {

namespace baseline { extern const Kernels kernels; }
#if defined(__x86_64__)
namespace x86_v3 { extern const Kernels kernels; }
namespace x86_v4 { extern const Kernels kernels; }
#elif defined(__aarch64__)
namespace neon { extern const Kernels kernels; }
#endif

std::vector<const Kernels*> compiled_kernels() {
#if defined(__x86_64__)
  return {&baseline::kernels, &x86_v3::kernels, &x86_v4::kernels};
#elif defined(__aarch64__)
  return {&baseline::kernels, &neon::kernels};
#else
  return {&baseline::kernels};
#endif
}

#if defined(__x86_64__)
namespace {

bool runs_x86_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("lzcnt") &&
         __builtin_cpu_supports("movbe") && __builtin_cpu_supports("popcnt");
}

bool runs_x86_v4() {
  return runs_x86_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

bool usable(const Kernels& kernels) {
  if (&kernels == &x86_v4::kernels) return runs_x86_v4();
  return &kernels == &baseline::kernels || runs_x86_v3();
}
#else
bool usable(const Kernels&) { return true; }
#endif

namespace {

// Rule 1: the processor's default floating-point mode for the time of a call. Other libraries of the
// process may have switched on flush-to-zero or another rounding.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~DefaultFloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  DefaultFloatMode() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~DefaultFloatMode() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  uint64_t saved_;
#else
  DefaultFloatMode() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

// One thread's scratch memory. It grows to the largest vocabulary seen; pages that no setting touches
// never become resident.
class ThreadWorkspace {
 public:
  Workspace& for_vocabulary(int64_t vocabulary) {
    if (vocabulary > capacity_) grow(vocabulary);
    return work_;
  }

 private:
  void grow(int64_t vocabulary) {
    const int64_t blocks = (vocabulary + kBlock - 1) / kBlock;
    work_ = {};
    capacity_ = 0;
    work_.best = take(floats_[0], blocks);
    work_.lane_best = take(floats_[1], blocks * 16);
    work_.sums = take(words_[0], blocks);
    work_.keys = take(words_[1], vocabulary);
    work_.masses = take(words_[2], vocabulary);
    work_.keys_left = take(words_[3], vocabulary);
    work_.masses_left = take(words_[4], vocabulary);
    capacity_ = vocabulary;
  }

  template <class Item>
  static Item* take(std::unique_ptr<Item[]>& owner, int64_t length) {
    owner.reset(new Item[static_cast<size_t>(length + kPadding)]);
    return owner.get();
  }

  std::unique_ptr<float[]> floats_[2];
  std::unique_ptr<uint64_t[]> words_[5];
  Workspace work_ = {};
  int64_t capacity_ = 0;
};

thread_local ThreadWorkspace workspace;

// Waking a thread costs a few microseconds: each shall have several times that to do.
constexpr int64_t kLogitsPerThread = 1 << 18;

// Workers stay until the process ends, so a slip such as 2^31 - 1 must not start them all.
constexpr int64_t kMostThreads = 256;

int choose_threads(const Batch& batch, int threads) {
  int64_t most = threads;
  if (threads == 0) {
    most = batch.rows * batch.vocabulary / kLogitsPerThread;
    if (most > hardware_threads()) most = hardware_threads();
  }
  if (most > batch.rows) most = batch.rows;
  if (most > kMostThreads) most = kMostThreads;
  return most < 1 ? 1 : static_cast<int>(most);
}

struct Job {
  const Kernels& kernels;
  const Batch& batch;
  int64_t* tokens;
  uint8_t* status;
};

void sample_row(void* context, int64_t row) {
  const Job& job = *static_cast<const Job*>(context);
  const DefaultFloatMode mode;
  Workspace& work = workspace.for_vocabulary(job.batch.vocabulary);
  job.status[row] = job.kernels.sample(job.batch.logits + row * job.batch.stride,
                                       job.batch.vocabulary, job.batch.settings[row], work,
                                       &job.tokens[row]);
}

}  // namespace

void sample_rows(const Kernels& kernels, const Batch& batch, int threads, int64_t* tokens,
                 uint8_t* status) {
  Job job = {kernels, batch, tokens, status};
  parallel_for(batch.rows, choose_threads(batch, threads), sample_row, &job);
}

Status kept_set(const Kernels& kernels, const void* logits, int64_t vocabulary,
                const Settings& settings, int64_t* tokens, uint64_t* masses, int64_t* count) {
  const DefaultFloatMode mode;
  return kernels.kept_set(logits, vocabulary, settings, workspace.for_vocabulary(vocabulary), tokens,
                          masses, count);
}

}  // namespace fastsample

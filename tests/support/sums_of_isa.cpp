// Prints one instruction set's sums of the numbers in standard input: the total of each block in the fixed order, as
// bits, and the digits of the exact sum. It needs no Python, so it also runs on an emulated processor. Compiled with
// FASTSAMPLE_ISA, a namespace of isa_list.hpp; the argument is a DType.
#include "sampling/kernels.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace fastsample;

int main(int, char** arguments) {
  std::vector<char> bytes;
  for (int byte; (byte = std::getchar()) != EOF;) bytes.push_back(static_cast<char>(byte));
  const DType dtype = static_cast<DType>(std::atoi(arguments[1]));
  const int64_t size = dtype == kFloat64 ? 8 : dtype == kFloat32 ? 4 : 2;
  const Numbers numbers = {bytes.data(), static_cast<int64_t>(bytes.size()) / size, dtype};
  std::vector<double> totals(static_cast<size_t>((numbers.count + kRuleBlock - 1) / kRuleBlock));
  FASTSAMPLE_ISA::kernels.sums.fixed(numbers, totals.data());
  for (const double total : totals) {
    uint64_t bits;
    std::memcpy(&bits, &total, sizeof bits);
    std::printf("%" PRIu64 "\n", bits);
  }
  ExactSum sum = {};
  FASTSAMPLE_ISA::kernels.sums.exact(numbers, sum);
  for (const int64_t digit : sum.digits) std::printf("%" PRId64 "\n", digit);
}

// Answers questions in standard input with one instruction set's random words, clocks and times of a race. It needs no
// Python, so it also runs on an emulated processor. Compiled with FASTSAMPLE_ISA, a namespace of isa_list.hpp.
#include "sampling/race_head.hpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace fastsample;
using namespace fastsample::FASTSAMPLE_ISA;

// The first part of a question. Then come `count` indices of words, masses, and words whose clocks are wanted.
struct Header {
  uint64_t seed;
  uint64_t position;
  uint64_t stream;
  uint64_t purpose;
  uint64_t floor;
  int64_t count;
};

size_t padded(int64_t count) { return static_cast<size_t>(count + kLanes); }

// Zeros follow up to a full vector, and are computed with.
std::vector<uint64_t> read_words(int64_t count) {
  std::vector<uint64_t> words(padded(count));
  const size_t size = static_cast<size_t>(count);
  if (std::fread(words.data(), sizeof words[0], size, stdin) != size) std::exit(1);
  return words;
}

template <class Item>
void write(const std::vector<Item>& items, int64_t count) {
  std::fwrite(items.data(), sizeof(Item), static_cast<size_t>(count), stdout);
}

WordPair pair_at(const uint64_t* words) {
  WordPair pair;
  std::memcpy(&pair, words, sizeof pair);
  return pair;
}

void respond(const Header& header) {
  const int64_t count = header.count;
  const Place place = {header.seed, header.position, static_cast<uint32_t>(header.stream)};
  const std::vector<uint64_t> indices = read_words(count), masses = read_words(count),
                              given = read_words(count);
  std::vector<uint64_t> low(padded(count)), high(padded(count)), steps(padded(count));
  std::vector<double> clocks(padded(count)), times(padded(count));
  std::vector<float> near(padded(count));
  for (int64_t i = 0; i < count; i += kLanes) {
    const RandomWords words = random_words(place, pair_at(&indices[i]), static_cast<uint32_t>(header.purpose));
    std::memcpy(&low[i], &words.low, sizeof words.low);
    std::memcpy(&high[i], &words.high, sizeof words.high);
    const WordPair k = pair_at(&given[i]);
    for (int half = 0; half < 2; ++half) {
      const Doubles clock = clock_of(k.half[half]);
      const Uwords in_integers = in_steps(clock);
      std::memcpy(&clocks[i + half * kWordLanes], &clock, sizeof clock);
      std::memcpy(&steps[i + half * kWordLanes], &in_integers, sizeof in_integers);
    }
    const Floats close = near_clocks((Uints)upper_halves(k));
    std::memcpy(&near[i], &close, sizeof close);
  }
  const auto tokens_at = [&](int64_t i) { return pair_at(&indices[i]); };
  write_times(place, tokens_at, masses.data(), header.floor, count, times.data());
  write(low, count);
  write(high, count);
  write(clocks, count);
  write(steps, count);
  write(times, count);
  write(near, count);
  std::fflush(stdout);
}

}  // namespace

int main() {
  Header header;
  while (std::fread(&header, sizeof header, 1, stdin) == 1) respond(header);
}

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "lockstep/base/simd/isa.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep {
namespace {

// Memory that ends where no more can be touched.
class Walled {
 public:
  explicit Walled(std::size_t bytes)
      : mapped_((bytes + page_ - 1) / page_ * page_ + page_), bytes_(bytes) {
    memory_ = static_cast<std::byte*>(
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(memory_), MAP_FAILED);
    EXPECT_EQ(::mprotect(memory_ + mapped_ - page_, page_, PROT_NONE), 0);
  }
  ~Walled() { ::munmap(memory_, mapped_); }
  Walled(const Walled&) = delete;
  Walled& operator=(const Walled&) = delete;

  std::byte* data() { return memory_ + mapped_ - page_ - bytes_; }

 private:
  std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t mapped_;
  std::size_t bytes_;
  std::byte* memory_;
};

// Lines of long calls are asked for ahead: around the sizes where that begins and changes.
TEST(LongCalls, InPlaceAreRightAndStayInTheirBuffers) {
  std::mt19937_64 random(11);
  std::vector<std::uint64_t> noise((2 << 20) / sizeof(std::uint64_t) + 1024);
  for (auto& word : noise) word = random();
  const auto* bytes_of_noise = reinterpret_cast<const std::byte*>(noise.data());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kU8}) {
    const std::size_t size = size_of(dtype);
    for (const std::size_t bytes : {2048u, 4096u, 16384u, 1u << 20, 2u << 20}) {
      for (const int difference : {-1, 0, 37}) {
        const std::size_t count = bytes / size + static_cast<std::size_t>(difference);
        for (const std::size_t ranks : {2, 3, 4}) {
          SCOPED_TRACE(fmt::format("{} {} of {} ranks", count, name(dtype), ranks));
          std::deque<Walled> buffers;
          std::vector<const std::byte*> from;
          std::vector<std::byte*> to;
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            from.push_back(buffers.emplace_back(count * size).data());
            to.insert(to.begin(), buffers.back().data());
          }
          const auto fill = [&] {
            for (std::size_t rank = 0; rank < ranks; ++rank) {
              std::memcpy(buffers[rank].data(), bytes_of_noise + rank * 8, count * size);
            }
          };
          std::vector<std::byte> expected(count * size);
          std::byte* apart = expected.data();
          fill();
          choose_isa(Isa::kScalar);
          combine(from, {&apart, 1}, count, dtype, ReduceOp::kSum);
          for (const Isa isa : available_isas()) {
            fill();
            choose_isa(isa);
            combine(from, to, count, dtype, ReduceOp::kSum);
            for (const std::byte* output : to) {
              ASSERT_EQ(std::memcmp(output, apart, count * size), 0) << name(isa);
            }
          }
        }
      }
    }
  }
  choose_isa(available_isas().front());
}

}  // namespace
}  // namespace lockstep

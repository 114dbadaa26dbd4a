// Streams of records: all bytes in order, or an error.
#include "lockstep/base/net/record_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/hmac.h"

namespace lockstep::record_test {
namespace {

using Bytes = std::vector<std::byte>;

struct Ends {
  UniqueFd one;
  UniqueFd other;
};

Ends connected() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

struct Protections {
  Protection one;
  Protection other;
};

Protections protections(bool encrypted) {
  Protections both;
  if (!encrypted) return both;
  both.one.encrypted = both.other.encrypted = true;
  fill_random(both.one.to_peer);
  fill_random(both.one.from_peer);
  both.other.to_peer = both.one.from_peer;
  both.other.from_peer = both.one.to_peer;
  return both;
}

Bytes some_bytes(std::size_t count, unsigned seed) {
  std::mt19937 draw(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw());
  return bytes;
}

Deadline soon() { return deadline_in(std::chrono::seconds(20)); }

// Reads to the end of the stream in pieces of odd sizes, now by read(), now by peek().
Bytes read_to_end(RecordStream& stream, std::size_t expected) {
  Bytes all;
  Bytes piece(200'000);
  std::mt19937 draw(4);
  while (all.size() < expected) {
    std::size_t got = 0;
    if (draw() % 3 == 0) {
      const auto arrived = stream.peek();
      if (!arrived) break;
      got = arrived->empty() ? 0 : 1 + draw() % arrived->size();
      all.insert(all.end(), arrived->begin(), arrived->begin() + static_cast<std::ptrdiff_t>(got));
      stream.consume(got);
    } else {
      const auto into = std::span(piece).first(1 + draw() % (draw() % 2 == 0 ? 100 : piece.size()));
      const auto moved = stream.read(into);
      if (!moved) break;
      got = *moved;
      all.insert(all.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got));
    }
    if (got == 0 && !wait_for_fd(stream.fd(), POLLIN, soon())) {
      ADD_FAILURE() << "nothing came";
      break;
    }
  }
  return all;
}

TEST(Records, CarryAllBytesInOrderBothWays) {
  const Bytes bytes = some_bytes(3'000'000, 1);
  for (const bool encrypted : {false, true}) {
    Ends ends = connected();
    const Protections both = protections(encrypted);
    RecordStream one(std::move(ends.one), both.one);
    RecordStream other(std::move(ends.other), both.other);
    EXPECT_EQ(one.is_encrypted(), encrypted);
    const auto write_all = [&](RecordStream& stream) {
      std::mt19937 draw(2);
      std::size_t at = 0;
      while (at < bytes.size()) {
        const std::size_t size = std::min<std::size_t>(1 + draw() % 150'000, bytes.size() - at);
        const std::size_t cut = draw() % (size + 1);
        std::size_t sent = 0;
        while (sent < size) {
          const auto message = std::span(bytes).subspan(at, size);
          const std::size_t past = std::max(sent, cut);
          const std::span<const std::byte> parts[] = {
              message.first(cut).subspan(std::min(sent, cut)), {}, message.subspan(past)};
          const auto accepted = stream.write(parts);
          ASSERT_TRUE(accepted) << stream.write_loss();
          sent += *accepted;
          if (sent < size) {
            ASSERT_TRUE(wait_for_fd(stream.fd(), POLLOUT, soon()));
          }
        }
        at += size;
      }
    };
    std::jthread first([&] { write_all(one); });
    std::jthread second([&] { write_all(other); });
    std::jthread back([&] { EXPECT_TRUE(read_to_end(one, bytes.size()) == bytes); });
    EXPECT_TRUE(read_to_end(other, bytes.size()) == bytes);
  }
}

// What `send` puts on the wire.
Bytes recorded(const Protection& protection, const std::function<void(RecordStream&)>& send) {
  Ends ends = connected();
  Bytes wire;
  std::jthread reader([&, from = ends.other.get()] {
    Bytes piece(1 << 16);
    for (ssize_t got; (got = ::read(from, piece.data(), piece.size())) > 0;) {
      wire.insert(wire.end(), piece.begin(), piece.begin() + got);
    }
  });
  RecordStream stream(std::move(ends.one), protection);
  send(stream);
  stream.close();
  reader.join();
  return wire;
}

enum class Outcome { kWhole, kShort, kCorrupted, kWrong };

// What a reader makes of these bytes, where `expected` was sent.
Outcome outcome(const Protection& protection, std::span<const std::byte> wire,
                const Bytes& expected) {
  Ends ends = connected();
  RecordStream stream(std::move(ends.one), protection);
  std::jthread writer([&] {
    EXPECT_EQ(::send(ends.other.get(), wire.data(), wire.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(wire.size()));
    ends.other.reset();
  });
  try {
    const Bytes read = read_to_end(stream, expected.size() + 1);
    if (read == expected) return Outcome::kWhole;
    const bool is_prefix =
        read.size() < expected.size() && std::equal(read.begin(), read.end(), expected.begin());
    return is_prefix ? Outcome::kShort : Outcome::kWrong;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupted) << error.what();
    return Outcome::kCorrupted;
  }
}

class EitherRecords : public ::testing::TestWithParam<bool> {
 protected:
  // Three messages, and so three records.
  EitherRecords() : both_(protections(GetParam())), content_(some_bytes(300, 5)) {
    wire_ = recorded(both_.one, [&](RecordStream& stream) {
      for (int i = 0; i < 3; ++i) {
        stream.send(std::span(content_).subspan(static_cast<std::size_t>(100 * i), 100), soon());
      }
    });
    record_ = wire_.size() / 3;
  }

  Protections both_;
  Bytes content_;
  Bytes wire_;
  std::size_t record_ = 0;  // bytes on the wire
};
INSTANTIATE_TEST_SUITE_P(, EitherRecords, ::testing::Values(false, true),
                         [](const auto& each) { return each.param ? "Encrypted" : "Checksummed"; });

TEST_P(EitherRecords, ArriveAsTheyWereSent) {
  EXPECT_EQ(outcome(both_.other, wire_, content_), Outcome::kWhole);
  EXPECT_EQ(wire_.size(), 300u + 3 * (GetParam() ? 32u : 16u));
}

TEST_P(EitherRecords, NoFlippedBitGoesUnnoticed) {
  for (std::size_t bit = 0; bit < 8 * wire_.size(); ++bit) {
    Bytes changed = wire_;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_EQ(outcome(both_.other, changed, content_), Outcome::kCorrupted) << "bit " << bit;
  }
}

TEST_P(EitherRecords, RepeatedMissingOrSwappedRecordsAreNoticed) {
  const auto record = [&](std::size_t i) { return std::span(wire_).subspan(i * record_, record_); };
  for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 0, 1, 2},
                                                {0, 2},
                                                {1, 2},
                                                {1, 0, 2},
                                                {0, 1, 2, 2},
                                                {0, 1, 2, 0}}) {
    Bytes changed;
    for (const std::size_t i : order) {
      changed.insert(changed.end(), record(i).begin(), record(i).end());
    }
    EXPECT_EQ(outcome(both_.other, changed, content_), Outcome::kCorrupted);
  }
}

TEST_P(EitherRecords, ACutStreamIsShortAndNeverWrong) {
  for (std::size_t size = 0; size < wire_.size(); ++size) {
    EXPECT_EQ(outcome(both_.other, std::span(wire_).first(size), content_), Outcome::kShort);
  }
}

TEST(Records, ALengthIsCheckedBeforeItIsUsed) {
  for (const std::uint32_t length :
       {std::uint32_t{0}, static_cast<std::uint32_t>(kLongestRecord) + 1, 0xffffffffU}) {
    RecordHeader header{.length = length};
    header.seal();
    EXPECT_EQ(outcome({}, header.bytes(), Bytes(10)), Outcome::kCorrupted) << length;
  }
}

// A recording of one connection means nothing on another one, or in the other direction.
TEST(Records, EncryptedOnesOfAnotherConnectionAreRefused) {
  const Protections first = protections(true);
  const Protections second = protections(true);
  const Bytes content = some_bytes(50, 6);
  const Bytes wire =
      recorded(first.one, [&](RecordStream& stream) { stream.send(content, soon()); });
  EXPECT_EQ(outcome(first.other, wire, content), Outcome::kWhole);
  EXPECT_EQ(outcome(second.other, wire, content), Outcome::kCorrupted);
  EXPECT_EQ(outcome(first.one, wire, content), Outcome::kCorrupted);
  EXPECT_EQ(std::search(wire.begin(), wire.end(), content.begin(), content.begin() + 8),
            wire.end());
}

// A long payload goes straight to its place; its last byte is not returned before it was checked.
TEST(Records, ALongRecordIsCheckedBeforeItsLastByteIsReturned) {
  const Bytes content = some_bytes(kLongestRecord, 7);
  Bytes wire = recorded({}, [&](RecordStream& stream) { stream.send(content, soon()); });
  wire[sizeof(RecordHeader) + 3] ^= std::byte{1};
  Ends ends = connected();
  RecordStream stream(std::move(ends.one));
  Bytes into(content.size());
  std::size_t done = 0;
  bool noticed = false;
  for (std::size_t at = 0; at < wire.size(); at += 5000) {
    const std::size_t size = std::min<std::size_t>(5000, wire.size() - at);
    ASSERT_EQ(::send(ends.other.get(), wire.data() + at, size, 0), static_cast<ssize_t>(size));
    try {
      done += stream.read(std::span(into).subspan(done)).value();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupted);
      noticed = true;
    }
    EXPECT_LT(done, content.size());
  }
  EXPECT_GT(done, 0u) << "nothing went straight to its place";
  EXPECT_TRUE(noticed);
}

}  // namespace
}  // namespace lockstep::record_test

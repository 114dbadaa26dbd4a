#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/train/observe/event_record.h"
#include "lockstep/train/observe/observer.h"
#include "tests/train/run/observed_run.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The bytes are those that TensorBoard's own writer makes of the same events.
TEST(EventRecord, HasTensorBoardsBytes) {
  const auto hex = [](const std::string& record) {
    return to_hex(std::as_bytes(std::span(record.data(), record.size())));
  };
  constexpr double kTime = 1700000000.25;
  EXPECT_EQ(hex(version_record(kTime)),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  EXPECT_EQ(hex(restart_record(kTime, 301)),
            "100000000000000095fbfe180900001040fc54d94110ad023a020801cb79b93b");
  const Scalar scalars[] = {{"loss", 2.5}, {"lr", 6e-4}};
  EXPECT_EQ(hex(scalars_record(kTime, 300, scalars)),
            "2600000000000000734fe3000900001040fc54d94110ac022a180a0b0a046c6f737315000020400a090a02"
            "6c721552491d3a20d98fa2");
  const Histogram norms{"grad_norm/head", {1.1, 0.5, 0, 1, 0.5}};
  EXPECT_EQ(hex(histograms_record(kTime, 300, {&norms, 1})),
            "bd00000000000000632129090900001040fc54d94110ac022aae010aab010a0e677261645f6e6f726d2f68"
            "6561642a9801119a9999999999f13f19000000000000144021cdcccccccccc084029ae47e17a14ae054032"
            "380000000000000000000000000000e03f15b7310afe06e33fcd3b7f669ea0e63fadd35a999fe8ea3f0000"
            "00000000f03f15b7310afe06f33f3a38000000000000f03f00000000000000400000000000000000000000"
            "00000000000000000000000000000000000000f03f000000000000f03f4ae4dc55");
  EXPECT_EQ(hex(text_record(kTime, 300, "sample", "    To be")),
            "3700000000000000e7e8ca590900001040fc54d94110ac022a290a270a0673616d706c6542130807120412"
            "020801420920202020546f2062654a080a060a0474657874e6305f9f");
}

// A reader that shares nothing with the writer: it knows the framing and protocol buffers, and
// computes its checksums bit by bit. Throws where a file is not as it should be.
namespace reader {

struct Event {
  double time = 0;
  std::int64_t step = 0;
  std::string version;
  std::optional<std::uint64_t> session;
  std::map<std::string, float> scalars;
  std::map<std::string, double> counts;  // of the values of histograms
  std::map<std::string, std::string> texts;
};

std::uint32_t checksum(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

std::string_view take(std::string_view& from, std::size_t size) {
  if (from.size() < size) throw std::runtime_error("cut short");
  const std::string_view taken = from.substr(0, size);
  from.remove_prefix(size);
  return taken;
}

template <class T>
T take_as(std::string_view& from) {
  T value;
  std::memcpy(&value, take(from, sizeof(T)).data(), sizeof(T));
  return value;
}

std::uint64_t take_varint(std::string_view& from) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(from, 1)[0]);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw std::runtime_error("a number without end");
}

// Calls visit(field, number or bits, bytes) for every field of a message.
template <class Visit>
void for_each_field(std::string_view message, const Visit& visit) {
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    switch (key & 7) {
      case 0:
        visit(key >> 3, take_varint(message), std::string_view());
        break;
      case 1:
        visit(key >> 3, take_as<std::uint64_t>(message), std::string_view());
        break;
      case 2:
        visit(key >> 3, 0, take(message, take_varint(message)));
        break;
      case 5:
        visit(key >> 3, take_as<std::uint32_t>(message), std::string_view());
        break;
      default:
        throw std::runtime_error("unknown type of field");
    }
  }
}

Event event_in(std::string_view message) {
  Event event;
  for_each_field(message, [&](std::uint64_t field, std::uint64_t number, std::string_view bytes) {
    if (field == 1) event.time = std::bit_cast<double>(number);
    if (field == 2) event.step = static_cast<std::int64_t>(number);
    if (field == 3) event.version = bytes;
    if (field == 7) {
      for_each_field(bytes, [&](auto, std::uint64_t status, auto) { event.session = status; });
    }
    if (field != 5) return;
    for_each_field(bytes, [&](auto, auto, std::string_view value) {
      std::string tag;
      for_each_field(value, [&](std::uint64_t part, std::uint64_t bits, std::string_view inner) {
        if (part == 1) tag = inner;
        if (part == 2) event.scalars[tag] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (part != 5 && part != 8) return;
        for_each_field(inner, [&](std::uint64_t of, std::uint64_t number, std::string_view text) {
          if (part == 5 && of == 3) event.counts[tag] = std::bit_cast<double>(number);
          if (part == 8 && of == 8) event.texts[tag] = text;
        });
      });
    });
  });
  return event;
}

std::vector<Event> events_in(std::string_view file) {
  std::vector<Event> events;
  while (!file.empty()) {
    const std::string_view length = take(file, 8);
    if (take_as<std::uint32_t>(file) != checksum(length)) throw std::runtime_error("length");
    std::string_view copy = length;
    const std::string_view event = take(file, take_as<std::uint64_t>(copy));
    if (take_as<std::uint32_t>(file) != checksum(event)) throw std::runtime_error("event");
    events.push_back(event_in(event));
  }
  return events;
}

}  // namespace reader

class EventFile : public ObservedRun {
 protected:
  void run(std::int64_t first, std::int64_t last) {
    const auto observer = make_event_file();
    observer->begin(facts(first));
    for (std::int64_t step = first; step <= last; ++step) observer->step(record(step));
  }
  // In the order in which TensorBoard reads them.
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "tensorboard")) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
};

TEST_F(EventFile, TellsWhereTheTimeOfSeveralWorkersWent) {
  const auto observer = make_event_file();
  observer->begin(facts());
  StepRecord shared = record(1);
  shared.workers = {.compute_seconds = 0.5,
                    .communication_seconds = 0.25,
                    .exposed_seconds = 0.125,
                    .longest_exposed_seconds = 0.375,
                    .bytes_sent = 4096,
                    .staleness = 2,
                    .most_stale = 5,
                    .slowest_rank = 3,
                    .slowest_seconds = 0.75};
  observer->step(shared);
  auto scalars = reader::events_in(bytes_of(files()[0]))[1].scalars;
  for (const auto& [name, value] : std::map<std::string, float>{{"compute_ms", 500.0F},
                                                                {"communication_ms", 250.0F},
                                                                {"exposed_ms", 125.0F},
                                                                {"exposed_max_ms", 375.0F},
                                                                {"bytes_sent", 4096.0F},
                                                                {"staleness", 2.0F},
                                                                {"staleness_max", 5.0F},
                                                                {"slowest_rank", 3.0F},
                                                                {"slowest_ms", 750.0F}}) {
    EXPECT_EQ(scalars.at(name), value) << name;
  }
}

TEST_F(EventFile, HoldsEveryStep) {
  const auto observer = make_event_file();
  observer->begin(facts());
  observer->step(record(1));
  StepRecord second = record(2);
  second.validation_loss = 1.5;
  second.metrics.gradient_norm = std::numeric_limits<double>::infinity();
  second.metrics.loss = std::nan("");
  observer->step(second);

  ASSERT_EQ(files().size(), 1U);
  const auto events = reader::events_in(bytes_of(files()[0]));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_FALSE(events[0].session);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_GT(events[1].time, 1.6e9);
  const std::map<std::string, float> scalars = {{"loss", 4.0F},
                                                {"lr", 1e-3F},
                                                {"grad_norm", 0.5F},
                                                {"tokens_per_s", 2048.F},
                                                {"memory_bytes", 0x1p20F}};
  EXPECT_EQ(events[1].scalars, scalars);
  EXPECT_EQ(events[2].scalars.at("val_loss"), 1.5F);
  EXPECT_TRUE(std::isinf(events[2].scalars.at("grad_norm")));
  EXPECT_TRUE(std::isnan(events[2].scalars.at("loss")));
}

TEST_F(EventFile, HasHistogramsOfTheNormsOfBlocks) {
  RunFacts of_run = facts();
  of_run.steps = 1000;  // five of which are in one histogram
  of_run.blocks = {"embedding", "head"};
  const auto observer = make_event_file();
  observer->begin(of_run);
  for (std::int64_t step = 1; step <= 7; ++step) {
    StepRecord one = record(step);
    one.metrics.block_norms = {0.25, 0.5};
    one.metrics.skipped = step == 2;
    observer->step(one);
  }
  observer->end({});
  std::map<std::int64_t, std::map<std::string, double>> counts;
  for (const auto& event : reader::events_in(bytes_of(files()[0]))) {
    if (!event.counts.empty()) counts[event.step] = event.counts;
  }
  const std::map<std::int64_t, std::map<std::string, double>> expected = {
      {5, {{"grad_norm/embedding", 4}, {"grad_norm/head", 4}}},
      {7, {{"grad_norm/embedding", 2}, {"grad_norm/head", 2}}}};
  EXPECT_EQ(counts, expected);
}

TEST_F(EventFile, HasSamplesAsTexts) {
  const auto observer = make_event_file();
  observer->begin(facts());
  observer->step(record(1));
  observer->sample(1, "To be,\nor *not*");
  const auto event = reader::events_in(bytes_of(files()[0])).back();
  EXPECT_EQ(event.step, 1);
  EXPECT_EQ(event.texts.at("sample"), "    To be,\n    or *not*");
}

TEST_F(EventFile, AResumedRunBeginsAFileThatReplacesItsSteps) {
  run(1, 5);
  run(4, 6);
  run(6, 7);  // all three within a second
  const auto paths = files();
  ASSERT_EQ(paths.size(), 3U);
  std::vector<std::int64_t> replaced;
  for (const auto& path : paths) {
    const auto events = reader::events_in(bytes_of(path));
    ASSERT_GE(events.size(), 3U);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    if (events[1].session) {
      EXPECT_EQ(*events[1].session, 1U);  // START
      replaced.push_back(events[1].step);
    }
  }
  EXPECT_THAT(replaced, ElementsAre(4, 6));
}

TEST_F(EventFile, AValidationThatWasTakenLaterStandsAlone) {
  run(1, 3);
  const auto observer = make_event_file();
  observer->begin(facts(4));
  StepRecord again = record(3);
  again.validation_loss = 1.5;
  observer->step(again);
  const auto events = reader::events_in(bytes_of(files().back()));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].step, 3);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"val_loss", 1.5F}}));
}

TEST_F(EventFile, WhatCannotBeWrittenIsAnErrorAtTheBeginning) {
  write_file(folder_ / "tensorboard", "in the way");
  try {
    make_event_file()->begin(facts());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(), HasSubstr("tensorboard"));
  }
}

}  // namespace
}  // namespace lockstep::train

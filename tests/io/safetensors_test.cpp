#include "lockstep/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/io/safetensors_header.h"
#include "tests/paths.h"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Safetensors : public ::testing::Test {
 protected:
  static std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(std::string_view bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  // A file of that header, with that many bytes of data behind it.
  void put(std::string_view header, std::size_t data) const {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
    put(bytes + std::string(header) + std::string(data, 'x'));
  }
  std::string refusal(ErrorCode code = ErrorCode::kProtocol) const {
    try {
      const SafetensorsFile file(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path_.string()));
      return error.what();
    }
    return "nothing was thrown";
  }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
  const fs::path path_ = folder_ / "a.safetensors";
};

TEST_F(Safetensors, GivesBackWhatWasWrittenInEveryTypeAndShape) {
  std::vector<NamedTensor> written;
  std::vector<Buffer> memory;
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{17}, Shape{3, 5}, Shape{2, 0, 3},
                               Shape{1, 2, 3, 4, 5, 6}}) {
      memory.emplace_back(Tensor::bytes_of(dtype, shape));
      const Tensor tensor = memory.back().tensor(dtype, shape);
      for (std::size_t i = 0; i < tensor.bytes(); ++i) {
        tensor.data()[i] = static_cast<std::byte>(7 * i + memory.size());
      }
      written.push_back({std::string(name(dtype)) + shape.text() + " \"ü\"", tensor});
    }
  }
  write_safetensors(path_, written, {{"step", "7"}, {"", "empty"}});
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.entries().size(), written.size());
  EXPECT_EQ(file.metadata().at("step"), "7");
  EXPECT_EQ(file.metadata().at(""), "empty");
  for (const NamedTensor& one : written) {
    EXPECT_EQ(file.at(one.name).shape, one.tensor.shape());
    EXPECT_EQ(file.at(one.name).dtype, one.tensor.dtype());
    const auto loaded = file.load(one.name);
    EXPECT_EQ(loaded.tensor.shape(), one.tensor.shape());
    const auto bytes = [](const Tensor& tensor) {
      return std::vector(tensor.data(), tensor.data() + tensor.bytes());
    };
    EXPECT_EQ(bytes(loaded.tensor), bytes(one.tensor)) << one.name;
  }
}

TEST_F(Safetensors, DataIsAlignedToItsElementsInTheFile) {
  std::vector<std::int8_t> narrow(3);
  std::vector<double> wide(5);
  write_safetensors(path_, std::vector<NamedTensor>{{"narrow", tensor_of(std::span(narrow))},
                                                    {"wide", tensor_of(std::span(wide))}});
  const std::string bytes = bytes_of(path_);
  EXPECT_EQ((bytes.size() - 3) % 8, 0u);
  EXPECT_EQ(SafetensorsFile(path_).at("wide").begin, 0u);
  EXPECT_EQ(SafetensorsFile(path_).at("narrow").begin, 40u);
}

TEST_F(Safetensors, AFileWithoutTensorsIsOne) {
  write_safetensors(path_, {});
  EXPECT_THAT(SafetensorsFile(path_).entries(), IsEmpty());
}

TEST_F(Safetensors, ReadsWhatThePythonLibraryWrote) {
  const SafetensorsFile file(in_sources("tests/fixtures/interchange.safetensors"));
  EXPECT_EQ(file.metadata().at("written"), "by the Python library");
  EXPECT_THAT(file.load("f32").tensor.as<float>(), ElementsAre(-2.5, 0, 1, 3, 65504, 0.125));
  EXPECT_THAT(file.load("f64").tensor.as<double>(), ElementsAre(-2.5, 0, 1, 3, 65504, 0.125));
  EXPECT_EQ(file.at("f32").shape, (Shape{2, 3}));
  const auto f16 = file.load("f16");
  EXPECT_EQ(to_float(f16.tensor.as<Half>()[4]), 65504);
  const auto bf16 = file.load("bf16");
  EXPECT_EQ(to_float(bf16.tensor.as<BFloat16>()[0]), -2.5);
  EXPECT_EQ(to_float(bf16.tensor.as<BFloat16>()[4]), 65536);
  EXPECT_THAT(file.load("i64").tensor.as<std::int64_t>(), ElementsAre(-2, 0, 1, 3, 65504, 0));
  EXPECT_THAT(file.load("i32").tensor.as<std::int32_t>(), ElementsAre(-2, 0, 1, 3, 65504, 0));
  EXPECT_THAT(file.load("i8").tensor.as<std::int8_t>(), ElementsAre(-128, 0, 127));
  EXPECT_THAT(file.load("u8").tensor.as<std::uint8_t>(), ElementsAre(0, 255));
  EXPECT_EQ(file.load("scalar").tensor.shape(), Shape());
  EXPECT_EQ(file.load("empty").tensor.shape(), (Shape{0, 4}));
}

TEST_F(Safetensors, TypesThatWeDoNotHaveAreListedButNotRead) {
  const SafetensorsFile file(in_sources("tests/fixtures/interchange.safetensors"));
  EXPECT_EQ(file.at("bool").dtype, std::nullopt);
  EXPECT_EQ(file.at("bool").type, "BOOL");
  EXPECT_EQ(file.at("bool").bytes, 6u);
  try {
    file.load("i16");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("type I16"));
  }
}

TEST_F(Safetensors, ReadingChecksNameTypeAndSize) {
  std::vector<float> values{1, 2, 3};
  write_safetensors(path_, std::vector<NamedTensor>{{"h.0.weight", tensor_of(std::span(values))}});
  const SafetensorsFile file(path_);
  std::vector<float> to(3);
  file.read("h.0.weight", tensor_of(std::span(to), {3, 1}));
  EXPECT_THAT(to, ElementsAre(1, 2, 3));
  std::vector<std::int32_t> other(3);
  const auto refused = [&](std::string_view name, const Tensor& into) {
    try {
      file.read(name, into);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refused("h.0.weigth", tensor_of(std::span(to))),
              HasSubstr("has no tensor 'h.0.weigth' (did you mean h.0.weight?)"));
  EXPECT_THAT(refused("h.0.weight", tensor_of(std::span(other))),
              HasSubstr("is [3] of f32; it was asked for as [3] of i32"));
  EXPECT_THAT(refused("h.0.weight", tensor_of(std::span(to).first(2))), HasSubstr("as [2] of f32"));
}

TEST_F(Safetensors, WritingRefusesANameThatComesTwice) {
  std::vector<float> values{1};
  const NamedTensor one{"a", tensor_of(std::span(values))};
  EXPECT_THROW(write_safetensors(path_, std::vector{one, one}), Error);
  EXPECT_THROW(write_safetensors(path_, std::vector{NamedTensor{"__metadata__", one.tensor}}),
               Error);
  EXPECT_THROW(write_safetensors(path_, std::vector{NamedTensor{"\xff", one.tensor}}), Error);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Safetensors, RefusesFilesThatAreMissingOrNoFiles) {
  EXPECT_THAT(refusal(ErrorCode::kSystem), HasSubstr("No such file"));
  fs::create_directory(path_);
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument), HasSubstr("is a folder"));
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument), HasSubstr("is a pipe"));
}

// With time in proportion to the square of their number, writing and reading them would take many
// minutes, and ctest would end the test.
TEST_F(Safetensors, HoldsHundredsOfThousandsOfTensors) {
  constexpr std::size_t kTensors = 400'000;
  SafetensorsHeader header;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::string name = "layer." + std::to_string(i);
    header.entries.push_back({.name = name,
                              .type = "U8",
                              .dtype = DType::kU8,
                              .shape = Shape{1},
                              .begin = i,
                              .bytes = 1});
    header.metadata[name] = "1";
  }
  const std::string text = format_header(header).substr(kHeaderSizeBytes);
  const SafetensorsHeader read = parse_header(text, kTensors, "a file");
  ASSERT_EQ(read.entries.size(), kTensors);
  EXPECT_EQ(read.entries[kTensors - 1].name, "layer.399999");
  EXPECT_EQ(read.entries[kTensors - 1].begin, kTensors - 1);
  EXPECT_EQ(read.metadata, header.metadata);
}

TEST_F(Safetensors, RefusesHeadersThatAreNone) {
  put("1234567");
  EXPECT_THAT(refusal(), HasSubstr("has 7 bytes, too few"));
  put(std::string(8, '\0'));
  EXPECT_THAT(refusal(), HasSubstr("its header is not valid JSON"));
  put(std::string(8, '\xff') + "{}");
  EXPECT_THAT(refusal(), HasSubstr("its header would have 18446744073709551615 bytes"));
  put(std::string("\x03\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(refusal(),
              HasSubstr("its header would have 3 bytes, but headers have at most 100000000"));
  for (const char* text : {"{", "[]", "7", "null", "{\"a\":}", "\xff\xfe", "{}{}"}) {
    put(text, 0);
    EXPECT_THAT(refusal(), HasSubstr("its header is not valid JSON")) << text;
  }
}

TEST_F(Safetensors, RefusesEntriesThatMakeNoSense) {
  const struct {
    const char* header;
    const char* said;
  } cases[] = {
      {R"({"a":7})", "'a' has no array 'shape'"},
      {R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,16]}})", "'a' has no array 'shape'"},
      {R"({"a":{"shape":[4],"data_offsets":[0,16]}})", "'a' has no string 'dtype'"},
      {R"({"a":{"dtype":"F31","shape":[4],"data_offsets":[0,16]}})", "unknown type 'F31'"},
      {R"({"a":{"dtype":"F32","shape":[4]}})", "no array 'data_offsets'"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})", "1 data_offsets instead of 2"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,-16]}})", "data_offsets of 'a' holds"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16.5]}})", "a whole number"},
      {R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "shape of 'a' holds -4"},
      {R"({"a":{"dtype":"F32","shape":["4"],"data_offsets":[0,16]}})", "shape of 'a' holds"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]}})",
       "shape of 'a' holds 18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
       "more elements than"},
      // 2^62 elements of 4 bytes are 2^64: none, where one does not look.
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})",
       "'a' has 0 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,4],"data_offsets":[0,16]}})", "at most 6"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})", "'a' has 16 bytes"},
      {R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})", "truncated or damaged"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[8,4]}})", "bytes 8 to 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "end at byte 8 of data"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", "bytes 0 to 8 of its data"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "'b' begins at byte 8, inside"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
       R"("a":{"dtype":"I32","shape":[4],"data_offsets":[0,16]}})",
       "it has 'a' twice"},
      {R"({"__metadata__":[]})", "__metadata__ is not an object"},
      {R"({"__metadata__":{"k":1}})", "'k' of __metadata__ is not a string"},
  };
  for (const auto& one : cases) {
    put(one.header, 16);
    EXPECT_THAT(refusal(), HasSubstr(one.said)) << one.header;
  }
}

TEST_F(Safetensors, EveryTruncationIsNoticed) {
  std::vector<float> values(9);
  write_safetensors(path_, std::vector<NamedTensor>{{"a", tensor_of(std::span(values))}});
  const std::string whole = bytes_of(path_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(std::string_view(whole).substr(0, size));
    EXPECT_NE(refusal(), "nothing was thrown") << size;
  }
}

TEST_F(Safetensors, AFileThatShrinksWhileItIsReadIsAnError) {
  std::vector<float> values(1000);
  write_safetensors(path_, std::vector<NamedTensor>{{"a", tensor_of(std::span(values))}});
  const SafetensorsFile file(path_);
  fs::resize_file(path_, 500);
  EXPECT_THROW(file.load("a"), Error);
}

}  // namespace
}  // namespace lockstep::io

#include "lockstep/io/parted_safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/io/hashed_file.h"

namespace lockstep::io::parted_safetensors_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PartedTensors : public ::testing::Test {
 protected:
  PartedTensors() { std::iota(numbers_.begin(), numbers_.end(), 0.0f); }

  // Elements of [3, 17], or of another shape.
  TensorPart part(const std::string& name, std::size_t first, std::size_t count,
                  const Shape& shape = {3, 17}) {
    return {.name = name,
            .shape = shape,
            .first = first,
            .elements = tensor_of(std::span(numbers_).subspan(first, count))};
  }
  void put(const std::vector<TensorPart>& parts) {
    names_.push_back(std::to_string(files_++));
    const SafetensorsParts file = parted_safetensors(parts);
    write_synced(folder_.path() / names_.back(), file.header, file.data);
  }
  void put_plain(const std::string& name, std::size_t count,
                 const std::map<std::string, std::string>& metadata) {
    names_.push_back(std::to_string(files_++));
    const NamedTensor tensor{name, tensor_of(std::span(numbers_).first(count))};
    write_safetensors(folder_.path() / names_.back(), {&tensor, 1}, metadata);
  }
  PartedSafetensors open() const { return {folder_.path(), names_}; }
  std::string refusal() {
    try {
      open();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      names_.clear();
      return error.what();
    }
    return "nothing was thrown";
  }

  ScratchFolder folder_;
  int files_ = 0;
  std::vector<std::string> names_;
  std::vector<float> numbers_ = std::vector<float>(51);
};

TEST_F(PartedTensors, AreWholeAndAnyElementsOfThemCanBeRead) {
  put({part("a", 20, 13), part("b", 0, 51), part("none", 0, 0, {0, 4})});
  put({});
  put({part("a", 33, 18)});
  put({part("a", 0, 20), part("scalar", 0, 1, {})});
  const PartedSafetensors files = open();
  EXPECT_THAT(files.names(), ElementsAre("a", "b", "none", "scalar"));
  EXPECT_EQ(files.at("a").shape, (Shape{3, 17}));
  EXPECT_EQ(files.at("a").bytes, 51 * sizeof(float));
  EXPECT_EQ(files.at("scalar").shape, Shape());
  for (const char* name : {"a", "b"}) {
    const auto whole = files.load(name);
    EXPECT_THAT(whole.tensor.as<float>(), ::testing::ElementsAreArray(numbers_));
    for (const std::size_t first : {0, 1, 19, 20, 32, 33, 50, 51}) {
      for (const std::size_t count : {0, 1, 2, 13, 51}) {
        std::vector<float> some(count, -1);
        if (first + count > 51) {
          EXPECT_THROW(files.read_part(name, first, tensor_of(std::span(some))), Error);
          continue;
        }
        files.read_part(name, first, tensor_of(std::span(some)));
        EXPECT_THAT(some, ::testing::ElementsAreArray(std::span(numbers_).subspan(first, count)));
      }
    }
  }
  EXPECT_THAT(files.files_of("a", 0, 20), ElementsAre(3));
  EXPECT_THAT(files.files_of("a", 19, 2), ElementsAre(3, 0));
  EXPECT_THAT(files.files_of("a", 0, 51), ElementsAre(3, 0, 2));
  EXPECT_THAT(files.files_of("a", 20, 0), IsEmpty());
  EXPECT_THAT(files.files_of("c", 0, 1), IsEmpty());
}

TEST_F(PartedTensors, ThatDoNotMakeUpTheWholeAreRefused) {
  put({part("a", 0, 20)});
  put({part("a", 21, 30)});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'a' from 20 on"), HasSubstr("nowhere")));
  put({part("a", 0, 20)});
  put({part("a", 19, 32)});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'a' from 19 on"), HasSubstr("twice")));
  put({part("a", 0, 51)});
  put({part("a", 0, 51)});
  EXPECT_THAT(refusal(), HasSubstr("twice"));
  put({part("a", 0, 20)});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("20 elements of 'a'"), HasSubstr("[3, 17]")));
  put({part("a", 0, 20)});
  put({part("a", 20, 31, {17, 3})});
  EXPECT_THAT(refusal(), HasSubstr("[17, 3]"));
}

TEST_F(PartedTensors, WhoseNamesOrShapesMakeNoSenseAreRefused) {
  put_plain("a[0:20]", 20, {});
  EXPECT_THAT(refusal(), HasSubstr("does not say of which shape"));
  put_plain("a[0:20]", 20, {{"a", "3,x"}});
  EXPECT_THAT(refusal(), HasSubstr("3,x"));
  put_plain("a[0:20]", 20, {{"a", "1,2,3,4,5,6,7"}});
  EXPECT_THAT(refusal(), HasSubstr("1,2,3,4,5,6,7"));
  put_plain("a[0:20]", 20, {{"a", "9223372036854775807,9223372036854775807"}});
  EXPECT_THAT(refusal(), HasSubstr("'a'"));
  put_plain("a[0:20]", 20, {{"a", "4611686018427387904"}});
  EXPECT_THAT(refusal(), HasSubstr("'a'"));
  put_plain("a[0:21]", 20, {{"a", "21"}});
  EXPECT_THAT(refusal(), HasSubstr("20 elements"));
  // What does not say which elements it has is a name like any other.
  put_plain("a[20:0]", 20, {});
  EXPECT_EQ(open().at("a[20:0]").shape, Shape{20});
}

}  // namespace
}  // namespace lockstep::io::parted_safetensors_test

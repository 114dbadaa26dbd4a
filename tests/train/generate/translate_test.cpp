// Translations by models of transformers are those that transformers makes of them.
#include <gtest/gtest.h>

#include <string>

#include "tests/train/generate/translations.h"

namespace lockstep::train::translate_test {
namespace {

class Translation : public ::testing::TestWithParam<const char*> {};

TEST_P(Translation, OfEverySentenceIsThatOfTransformers) {
  translations::expect_those_of_transformers(GetParam(), *make_cpu_ops(2));
}

INSTANTIATE_TEST_SUITE_P(OfT5, Translation, ::testing::Values("t5", "t5_v1_1"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lockstep::train::translate_test

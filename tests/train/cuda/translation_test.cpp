// Translations on a GPU: those that transformers makes.
#include <gtest/gtest.h>

#include <string>

#include "tests/tensor/cuda/gpu.h"
#include "tests/train/generate/translations.h"

namespace lockstep::train::cuda_translation_test {
namespace {

class CudaTranslation : public lockstep::testing::OnGpu<::testing::TestWithParam<const char*>> {};

TEST_P(CudaTranslation, OfEverySentenceIsThatOfTransformers) {
  translations::expect_those_of_transformers(GetParam(), *make_cuda_ops(0));
}

INSTANTIATE_TEST_SUITE_P(OfT5, CudaTranslation, ::testing::Values("t5", "t5_v1_1"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lockstep::train::cuda_translation_test

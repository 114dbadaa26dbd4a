// The models of Hugging Face transformers (tests/fixtures/) on a GPU, in f32.
#include <gtest/gtest.h>

#include <string>

#include "tests/tensor/cuda/gpu.h"
#include "tests/train/model_io/hugging_face_parity.h"

namespace lockstep::train::cuda_hugging_face_test {
namespace {

class CudaHuggingFace : public lockstep::testing::OnGpu<::testing::TestWithParam<const char*>> {};

TEST_P(CudaHuggingFace, LogitsGradientsAndTenStepsAreTheSame) {
  const Fixture fixture(GetParam());
  const auto ops = make_cuda_ops(0);
  expect_logits_and_loss(fixture, *ops, 1e-4, 1e-5);
  expect_gradients(fixture, *ops, 1e-3);
  expect_trained_losses(fixture, *ops, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaHuggingFace,
                         ::testing::Values("gpt2", "gpt2_relu", "gpt2_gelu", "llama", "llama3",
                                           "bert", "mistral", "mistral_window", "qwen2",
                                           "qwen2_window", "qwen3", "phi3", "phi3_window",
                                           "phi3_short", "phi3_long", "gpt_neox", "gpt_neox_serial",
                                           "mixtral", "gemma2", "gemma2_uncapped", "t5", "t5_v1_1"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lockstep::train::cuda_hugging_face_test

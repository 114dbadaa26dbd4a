// Parameters from and to files of Hugging Face transformers; nn/hugging_face/names.h says which of
// their tensors make which parameter of ours.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "lockstep/io/safetensors.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::nn {

// Fills a flat buffer of a whole model in f32 (nn/parameters/flat_parameters.h) with the tensors of
// a file, of f32, bf16 or f16, whose names start with `prefix`. Throws Error(kInvalidArgument) for
// a tensor that is missing or has another shape.
void read_hugging_face(const io::TensorSource& file, const plan::ModelShape& shape,
                       const FlatParameters& flat, const Tensor& buffer,
                       std::string_view prefix = "");

// Loads the parameters of a replica, master copy and rounded, whatever this rank holds of the
// model. Only that is read from the file, except for transposed matrices, which are read
// completely.
void load_hugging_face(const io::TensorSource& file, const plan::ModelShape& shape,
                       Replica& replica, std::string_view prefix = "");

// Checks that the file matches the model, before anything is read. Throws what read_hugging_face()
// would, and Error(kUnsupported) if the file has tensors that the model does not use, except those
// that are not parameters.
void check_is_model(const io::TensorSource& file, const plan::ModelShape& shape,
                    const FlatParameters& flat);

// Writes the parameters, f32 by their names in `parameters`, into model.safetensors of a folder or,
// where they are more than `shard_bytes`, into several files (io/sharded_safetensors.h). Keeps no
// more than a parameter or two in memory. Throws Error(kSystem).
struct HuggingFaceFiles {
  DType dtype = DType::kF32;  // f32, bf16 or f16: rounded
  std::size_t shard_bytes = 0;
};
void write_hugging_face(const std::filesystem::path& folder, const plan::ModelShape& shape,
                        const FlatParameters& flat, const io::TensorSource& parameters,
                        const HuggingFaceFiles& files);

}  // namespace lockstep::nn

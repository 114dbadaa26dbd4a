// The batches of a rank in a context group: its tokens of every sequence (nn/context_slice.h).
#pragma once

#include <memory>

#include "lockstep/nn/context_slice.h"
#include "lockstep/train/dataset/batch_source.h"

namespace lockstep::train {

// Of batches with tokens, targets, types and sources. Masks of keys stay whole: attention reads all
// keys.
std::unique_ptr<BatchSource> make_context_source(std::unique_ptr<BatchSource> whole,
                                                 const nn::ContextGroup& group);

}  // namespace lockstep::train

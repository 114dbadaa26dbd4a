// The computations of one stage in order, for every kind of pipeline. Pure functions without
// messages: those follow from the order (messages.h).
#pragma once

#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

// One micro-batch is in the stages at a time: the layers are spread over ranks, and nothing more.
//   stage 0:  F0       B0 F1       B1
//   stage 1:     F0 B0       F1 B1
std::vector<Action> sequential_order(const PipelineShape& shape, int stage);

// All forwards, then all backwards, both in the order of micro-batches, so that gradients
// accumulate in the order that a single stage has.
std::vector<Action> gpipe_order(const PipelineShape& shape, int stage);

// Stage i starts with p - 1 - i forwards; then forward and backward take turns.
std::vector<Action> one_f_one_b_order(const PipelineShape& shape, int stage);

// Megatron's interleaved schedule for any number of micro-batches. Micro-batches go around the
// ranks in groups: all of a group through chunk 0, then through chunk 1, and so on. A group of g >=
// p micro-batches keeps every rank busy until its first one comes around again. Megatron's groups
// are of p, so p has to divide m. Here m is cut into floor(m / p) groups of nearly equal size.
//
// Stage i starts with 2(p - 1 - i) + (v - 1)g forwards. The second term takes the first group
// through all chunks but the last; a stage waits 2(p - 1 - i) for the last one's first gradient.
std::vector<Action> interleaved_order(const PipelineShape& shape, int stage);

// Zero-bubble schedules: backward is split, and gradients of weights fill the time in which 1F1B
// waits. Stage i computes those of micro-batch j - lag after the gradient of the input of j. H1
// starts as 1F1B does and lags by i, so that every stage holds p micro-batches at most. H2 starts
// with twice as many forwards and lags by 2i: it holds 2p - 1 and never waits once it started.
std::vector<Action> zb_h1_order(const PipelineShape& shape, int stage);
std::vector<Action> zb_h2_order(const PipelineShape& shape, int stage);

// GPipe with slices of tokens: forward of slices in order, backward from the last to the first.
std::vector<Action> terapipe_order(const PipelineShape& shape, int stage);

// 1F1B over several batches without emptying the pipeline in between. A batch uses the weights of
// the update before the latest one, so every stage keeps two versions, and gradients are one update
// late: W(t+1) = W(t) - rate * gradient at W(t-1).
std::vector<Action> pipedream_2bw_order(const PipelineShape& shape, int stage);

}  // namespace lockstep::plan

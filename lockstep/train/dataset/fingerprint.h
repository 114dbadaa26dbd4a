// What tells the data of one run from that of another, or from what it was before.
#pragma once

#include <string>

#include "lockstep/train/dataset/batch_source.h"

namespace lockstep::train {

// How much there is and a hash: of token files that of pages all over them, first and last
// included, and of all where there are few; of pairs and tables of all. In words for people, which
// checkpoints keep: another text for the same data would be taken for other data. The same wherever
// the files lie, in whatever format, and for any micro-batch.
std::string data_fingerprint(const Dataset& dataset);

}  // namespace lockstep::train

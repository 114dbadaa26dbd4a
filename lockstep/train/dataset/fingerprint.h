// A fingerprint of the data of a run.
#pragma once

#include <string>

#include "lockstep/train/dataset/batch_source.h"

namespace lockstep::train {

// The amount of data and a hash: for token files, a hash of sampled pages including the first and
// the last (of all pages in small files); for pairs and tables, of everything. It is readable text,
// which checkpoints keep and compare, so its wording must not change. It does not depend on the
// path, the format or the micro-batch.
std::string data_fingerprint(const Dataset& dataset);

}  // namespace lockstep::train

// The cases, each in the file of its name.
#pragma once

#include "lockstep/bench/data_parallel/report.h"
#include "lockstep/bench/data_parallel/run_cases.h"
#include "lockstep/bench/data_parallel/session.h"

namespace lockstep::bench::data_parallel {

// One rank with T threads against T ranks with one thread, and PyTorch's DistributedDataParallel.
CaseReport run_scaling(Session& session);
// Gradients that are reduced during backward, and after it.
CaseReport run_overlap(Session& session);
// How large the buckets should be.
CaseReport run_buckets(Session& session);
// The order in which slices are sent to parameter servers, and the number of servers.
CaseReport run_servers(Session& session);
// One worker of four is slow: lockstep, bounded and unbounded staleness.
CaseReport run_stragglers(Session& session);
// What codecs save on the wire, and what they cost in loss.
CaseReport run_compression(Session& session);
// The same bits on 1, 2, 4 and 8 ranks.
CaseReport run_tree(Session& session);
// BERT over a ring: its loss falls on 4 ranks as on 1.
CaseReport run_bert(Session& session);

}  // namespace lockstep::bench::data_parallel

#include "lockstep/train/run/keeping.h"

#include "lockstep/train/memory/mirror_memory.h"

namespace lockstep::train {
namespace {

bool keeps_its_shard(const Trainer& trainer, const nn::Replica& replica) {
  return keeps_shards(trainer.options(), replica.ops().device());
}

}  // namespace

void decide_to_keep(Survival* survival, Trainer& trainer) {
  if (survival == nullptr) return;
  nn::Replica& replica = trainer.replica();
  survival->keeps = keeps_states(replica, trainer.strategy(), trainer.options().parallel);
  if (survival->keeps) trainer.set_survives();
  survival->keeps = survival->keeps || keeps_its_shard(trainer, replica);
  survival->is_decided = true;
}

bool keep(Survival* survival, Trainer& trainer, Mirror* mirror) {
  if (survival == nullptr || !survival->keeps) return false;
  nn::Replica& replica = trainer.replica();
  if (!keeps_its_shard(trainer, replica)) {
    survival->kept = keep_states(trainer);
    return true;
  }
  const auto& settled = trainer.last_settled();
  survival->shards = mirror != nullptr ? mirror->take(settled) : keep_whole_shard(replica, settled);
  survival->shards->numbering = survival->numbering;
  return true;
}

}  // namespace lockstep::train

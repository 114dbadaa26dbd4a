#include "lockstep/nn/blocks/bias_table.h"

#include <utility>

namespace lockstep::nn {
BiasTable::BiasTable(std::string name, const BiasTableOptions& options, std::int64_t hidden,
                     Side side)
    : name_(std::move(name)), options_(options), hidden_(hidden), side_(side) {}

std::string BiasTable::table() const { return name_ + "." + kTable; }

Shape BiasTable::output(const Setup& setup) const {
  return {stream_tokens(setup.shape, side_, options_.tensor).count, hidden_};
}

BlockSpec BiasTable::spec(const Setup& setup, const Ops& ops) const {
  Declaration declaration(setup, ops);
  declare_bias_table(declaration, kTable, options_);
  return declaration.take();
}

void BiasTable::forward(const Pass& pass) {
  if (!ops::is_given(pass.out.x)) return;
  pass.ops.in_order([&] { copy(pass.out.x, pass.in.x); });
}

void BiasTable::backward(const Pass& pass) {
  pass.finished(0);
  pass.ops.in_order([&] { copy(pass.din.x, pass.dout.x); });
}

}  // namespace lockstep::nn

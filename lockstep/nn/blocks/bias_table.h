// The table of the biases that the layers behind it add to their attention by distance
// (nn/parts/relative_bias.h). What flows between blocks goes through unchanged.
#pragma once

#include <string>

#include "lockstep/nn/block.h"
#include "lockstep/nn/parts/relative_bias.h"

namespace lockstep::nn {

class BiasTable : public Block {
 public:
  // `hidden`: the width of what goes through, on that side.
  BiasTable(std::string name, const BiasTableOptions& options, std::int64_t hidden, Side side);

  // The full name of the parameter.
  std::string table() const;

  std::string name() const override { return name_; }
  Shape output(const Setup& setup) const override;
  BlockSpec spec(const Setup& setup, const Ops& ops) const override;
  void forward(const Pass& pass) override;
  void restore(const Pass&) override {}
  void backward(const Pass& pass) override;

 private:
  static constexpr const char* kTable = "table";

  std::string name_;
  BiasTableOptions options_;
  std::int64_t hidden_;
  Side side_;
};

}  // namespace lockstep::nn

// Ends a run whose validation loss no longer falls (train.early_stopping).
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::train {

// Counts validations in their order. It has no state besides them, so a resumed run counts those of
// metrics.jsonl again, also with another patience.
class EarlyStopping {
 public:
  // A validation that is not below the lowest loss so far by more than `least_improvement` counts;
  // `patience` of them in a row end the run. 0: never.
  EarlyStopping(int patience, double least_improvement)
      : patience_(patience), least_improvement_(least_improvement) {}

  bool is_on() const { return patience_ > 0; }
  void add(std::int64_t step, double loss);
  bool stops() const { return is_on() && counted_ >= patience_; }
  // "the validation loss has not improved on 1.5201, of step 900, in 3 validations"
  std::string why() const;

  // For the other workers of a run.
  struct State {
    double best = 0;
    double best_step = 0;  // 0: there was no validation
    double counted = 0;
  };
  State state() const;
  void set_state(const State& state);

 private:
  int patience_;
  double least_improvement_;
  double best_ = 0;
  std::int64_t best_step_ = 0;
  int counted_ = 0;
};

}  // namespace lockstep::train

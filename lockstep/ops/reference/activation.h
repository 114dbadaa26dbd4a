// The activations and their derivatives.
#pragma once

#include "lockstep/ops/arguments.h"

namespace lockstep::ops::reference {

double activate(Activation activation, double z);
double derivative(Activation activation, double z);

}  // namespace lockstep::ops::reference

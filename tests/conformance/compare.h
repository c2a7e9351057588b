#pragma once

#include <string>

#include "conformance/op_cases.h"

namespace hadal::test {

// How far an output is from the reference's.
struct Distance {
  bool within = true;
  double worst = 0;   // numbers: in units of the bound; bytes and ids: share that differs
  std::string where;  // the first element that is out of bounds
};

// `exact`: to the bit, whatever the output allows. Else numbers may differ by `ulps` units in the
// last place of the larger of the wanted value and the root mean square of all wanted values (a sum
// that cancels keeps the error of its terms); bytes and ids may differ in `loose` of all places.
Distance compare(const Output& got, const Output& want, bool exact);

}  // namespace hadal::test

#pragma once

#include <cstdint>

namespace hadal::test {

struct Machine;

void attention_times(Machine& m);
void index_times(Machine& m);
// `n_seqs` sequences of `rows_each` rows whose first is at `position`.
void time_attend(Machine& m, int32_t n_seqs, int32_t rows_each, int32_t position);
void time_index(Machine& m, int32_t n_seqs, int32_t rows_each, int32_t position);

}  // namespace hadal::test

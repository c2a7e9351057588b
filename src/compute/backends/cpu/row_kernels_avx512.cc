#include "compute/backends/cpu/row_kernels_body.inc"

const RowKernels kRowKernelsAvx512 = kTable;

}  // namespace hadal::cpu

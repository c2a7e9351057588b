#include "main/cli.h"

// Read by jemalloc, where it is linked (docs/serving.md, "Load"). Few threads allocate all the
// time; with an arena for each that ever did, more half-empty pages would stay.
extern "C" {
extern const char* const malloc_conf;
const char* const malloc_conf = "narenas:2";
}

int main(int argc, char** argv) {
  return hadal::main::run_cli(argc, argv);
}

#include "main/cli.h"

int main(int argc, char** argv) {
  return hadal::main::run_cli(argc, argv);
}

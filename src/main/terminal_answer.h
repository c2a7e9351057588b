#pragma once

#include <string>

#include "base/core/result.h"
#include "base/types/engine_port.h"
#include "gateway/recipe/plan.h"
#include "gateway/recipe/vocabulary.h"
#include "main/terminal.h"

namespace hadal::main {

struct ShownAnswer {
  std::string reasoning, content;
  types::Completion completion;
  bool interrupted = false;  // by Ctrl-C; what came before is kept
};

// Has `request` generated and shows the answer while it comes. `raw`: no template, all is content.
core::Result<ShownAnswer> show_answer(types::EnginePort& engine, types::Request request,
                                      const recipe::Vocabulary& vocabulary, recipe::ParsePlan plan,
                                      bool raw, AnswerPrinter& printer, Interrupts& interrupts);

}  // namespace hadal::main

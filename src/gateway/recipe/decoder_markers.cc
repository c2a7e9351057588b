#include "gateway/recipe/decoder.h"

// What each stage waits for. The order inside a stage is the order of preference when two markers
// end on the same byte.
namespace hadal::recipe {
namespace {

constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kDsmlOpen = "<｜DSML｜";
constexpr std::string_view kDsmlClose = "</｜DSML｜";
constexpr uint8_t kDsmlBytes = sizeof("｜DSML｜") - 1;

Marker control(std::string_view text, Action action, bool takes_newlines) {
  return {.text = std::string(text),
          .action = action,
          .takes_newlines = takes_newlines,
          .strict_begin = 0,
          .strict_end = static_cast<uint8_t>(text.size())};
}

// A marker that holds the DSML token: the bytes before and after may come from anything.
Marker dsml(std::string_view text, Action action, bool takes_newlines) {
  const auto begin = static_cast<uint8_t>(text.find("｜DSML｜"));
  return {.text = std::string(text),
          .action = action,
          .takes_newlines = takes_newlines,
          .strict_begin = begin,
          .strict_end = static_cast<uint8_t>(begin + kDsmlBytes)};
}

Marker plain(std::string_view text, Action action) {
  return {.text = std::string(text), .action = action};
}

void add_stops(MarkerSet& set, const ParsePlan& plan) {
  for (size_t i = 0; i < plan.stop.size(); ++i) {
    set.add({.text = plan.stop[i], .action = Action::kStop, .index = static_cast<uint8_t>(i)});
  }
}

}  // namespace

void Decoder::build_markers() {
  MarkerSet& reasoning = markers_of(Stage::kReasoning);
  MarkerSet& answer = markers_of(Stage::kAnswer);
  MarkerSet& json = markers_of(Stage::kJson);
  MarkerSet& after_json = markers_of(Stage::kAfterJson);
  const bool compat = plan_.compat;

  auto add_dsml = [&](MarkerSet& set) {
    if (plan_.tool_calls) {
      set.add(dsml(kDsmlOpen, compat ? Action::kOpenCalls : Action::kProbeCalls, true));
    } else if (!compat) {
      Marker marker = dsml(kDsmlOpen, Action::kHideRest, true);
      marker.only_control = true;
      set.add(std::move(marker));
    }
  };
  auto add_noise = [&](MarkerSet& set, bool echo) {
    if (compat) return;
    set.add(control(kEos, Action::kDrop, false));
    if (echo) set.add(control(kThink, Action::kDropEcho, false));
  };

  for (const std::string& stop : plan_.stop) newline_stops_ |= stop == "\n";
  if (options_.raw) {
    newline_stops_ = false;
    add_stops(answer, plan_);
  } else {
    newline_stops_ &= !plan_.json;
    add_dsml(reasoning);
    reasoning.add(control(kThinkEnd, Action::kEndReasoning, true));
    add_noise(reasoning, true);

    if (plan_.json) {
      answer.add(plain("```json\n", Action::kOpenJson));
      answer.add(plain("```\n", Action::kOpenJson));
      answer.add(plain("{", Action::kKeepOpenJson));
      answer.add(plain("[", Action::kKeepOpenJson));
    } else {
      add_stops(answer, plan_);
    }
    add_dsml(answer);
    answer.add(control(kThinkEnd, Action::kDrop, false));
    add_noise(answer, true);

    add_stops(json, plan_);
    json.add(plain("\n```", Action::kCloseJson));
    add_noise(json, false);

    add_dsml(after_json);
    add_noise(after_json, false);
    build_call_markers();
  }
  for (MarkerSet& set : sets_) set.finish(compat);
}

void Decoder::build_call_markers() {
  MarkerSet& calls = markers_of(Stage::kCalls);
  MarkerSet& arguments = markers_of(Stage::kArguments);
  markers_of(Stage::kStringValue).add(dsml(kDsmlClose, Action::kEndValue, false));
  markers_of(Stage::kRawValue).add(dsml(kDsmlClose, Action::kEndValue, false));
  if (!plan_.compat) {
    calls.add(plain("invoke", Action::kOpenTag));
    calls.add(dsml(kDsmlClose, Action::kCloseTag, false));
    arguments.add(plain("parameter", Action::kParameterTag));
    arguments.add(dsml(kDsmlOpen, Action::kTagInCall, false));
    arguments.add(dsml(kDsmlClose, Action::kCloseTag, false));
    return;
  }
  calls.add(plain("invoke name=\"", Action::kInvokeName));
  calls.add(dsml("</｜DSML｜tool_calls>", Action::kEndBlock, false));
  calls.add(dsml("</｜DSML｜ calls>", Action::kEndBlock, false));
  markers_of(Stage::kName).add(plain("\"", Action::kNameDone));
  arguments.add(plain("parameter name=", Action::kParameterName));
  arguments.add(dsml(kDsmlClose, Action::kEndCall, false));
  markers_of(Stage::kParameterName).add(plain(" ", Action::kParameterTyped));
  markers_of(Stage::kParameterType).add(plain("true\">", Action::kStringValue));
  markers_of(Stage::kParameterType).add(plain("false\">", Action::kRawValue));
}

}  // namespace hadal::recipe

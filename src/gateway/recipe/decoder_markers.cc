#include <array>

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

std::shared_ptr<const Decoder::MarkerSets> Decoder::marker_sets(const ParsePlan& plan, bool raw) {
  if (!plan.stop.empty()) return std::make_shared<const MarkerSets>(build_markers(plan, raw));
  // Nothing else than these four switches is read there.
  static const auto kShared = [] {
    std::array<std::shared_ptr<const MarkerSets>, 16> all;
    for (size_t i = 0; i < all.size(); ++i) {
      ParsePlan switches;
      switches.tool_calls = (i & 1) != 0;
      switches.json = (i & 2) != 0;
      switches.compat = (i & 4) != 0;
      all[i] = std::make_shared<const MarkerSets>(build_markers(switches, (i & 8) != 0));
    }
    return all;
  }();
  return kShared[size_t{plan.tool_calls} + 2 * size_t{plan.json} + 4 * size_t{plan.compat} +
                 8 * size_t{raw}];
}

Decoder::MarkerSets Decoder::build_markers(const ParsePlan& plan, bool raw) {
  MarkerSets sets(static_cast<size_t>(Stage::kWithMarkers));
  const auto of = [&](Stage stage) -> MarkerSet& { return sets[static_cast<size_t>(stage)]; };
  MarkerSet& reasoning = of(Stage::kReasoning);
  MarkerSet& answer = of(Stage::kAnswer);
  MarkerSet& json = of(Stage::kJson);
  MarkerSet& after_json = of(Stage::kAfterJson);
  const bool compat = plan.compat;

  auto add_dsml = [&](MarkerSet& set) {
    if (plan.tool_calls) {
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

  if (raw) {
    add_stops(answer, plan);
  } else {
    add_dsml(reasoning);
    reasoning.add(control(kThinkEnd, Action::kEndReasoning, true));
    add_noise(reasoning, true);

    if (plan.json) {
      answer.add(plain("```json\n", Action::kOpenJson));
      answer.add(plain("```\n", Action::kOpenJson));
      answer.add(plain("{", Action::kKeepOpenJson));
      answer.add(plain("[", Action::kKeepOpenJson));
    } else {
      add_stops(answer, plan);
    }
    add_dsml(answer);
    answer.add(control(kThinkEnd, Action::kDrop, false));
    add_noise(answer, true);

    add_stops(json, plan);
    json.add(plain("\n```", Action::kCloseJson));
    add_noise(json, false);

    add_dsml(after_json);
    add_noise(after_json, false);
    build_call_markers(compat, sets);
  }
  for (MarkerSet& set : sets) set.finish(compat);
  return sets;
}

void Decoder::build_call_markers(bool compat, MarkerSets& sets) {
  const auto of = [&](Stage stage) -> MarkerSet& { return sets[static_cast<size_t>(stage)]; };
  MarkerSet& calls = of(Stage::kCalls);
  MarkerSet& arguments = of(Stage::kArguments);
  of(Stage::kStringValue).add(dsml(kDsmlClose, Action::kEndValue, false));
  of(Stage::kRawValue).add(dsml(kDsmlClose, Action::kEndValue, false));
  if (!compat) {
    of(Stage::kStringValue).add(dsml(kDsmlOpen, Action::kTagInValue, true));
    of(Stage::kRawValue).add(dsml(kDsmlOpen, Action::kTagInValue, true));
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
  of(Stage::kName).add(plain("\"", Action::kNameDone));
  arguments.add(plain("parameter name=", Action::kParameterName));
  arguments.add(dsml(kDsmlClose, Action::kEndCall, false));
  of(Stage::kParameterName).add(plain(" ", Action::kParameterTyped));
  of(Stage::kParameterType).add(plain("true\">", Action::kStringValue));
  of(Stage::kParameterType).add(plain("false\">", Action::kRawValue));
}

}  // namespace hadal::recipe

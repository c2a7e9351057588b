#include "gateway/admin/assets.h"

// The assembler copies the files in; CMakeLists.txt gives HADAL_WEB_DIR and the places of the
// libraries, and rebuilds when one changes.
#define HADAL_ASSET(name, file)                                                            \
  __asm__(".section .rodata\n.global hadal_asset_" #name "\nhadal_asset_" #name            \
          ":\n.incbin \"" file "\"\n.global hadal_asset_" #name "_end\nhadal_asset_" #name \
          "_end:\n.byte 0\n.previous\n");                                                  \
  extern "C" const char hadal_asset_##name[], hadal_asset_##name##_end[]

HADAL_ASSET(index, HADAL_WEB_DIR "/index.html");
HADAL_ASSET(style, HADAL_WEB_DIR "/style.css");
HADAL_ASSET(chat, HADAL_WEB_DIR "/chat.js");
HADAL_ASSET(engine, HADAL_WEB_DIR "/engine.js");
HADAL_ASSET(favicon, HADAL_WEB_DIR "/favicon.svg");
HADAL_ASSET(dygraph_js, HADAL_DYGRAPH_JS);
HADAL_ASSET(dygraph_css, HADAL_DYGRAPH_CSS);
HADAL_ASSET(marked, HADAL_MARKED_JS);
HADAL_ASSET(purify, HADAL_PURIFY_JS);
HADAL_ASSET(openapi, HADAL_OPENAPI_JSON);

namespace hadal::admin {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::span<const Asset> web_assets() {
  constexpr std::string_view kHtml = "text/html; charset=utf-8", kCss = "text/css; charset=utf-8",
                             kJs = "text/javascript; charset=utf-8", kSvg = "image/svg+xml";
  static const Asset all[] = {
      {"/", kHtml, between(hadal_asset_index, hadal_asset_index_end)},
      {"/favicon.svg", kSvg, between(hadal_asset_favicon, hadal_asset_favicon_end)},
      {"/favicon.ico", kSvg, between(hadal_asset_favicon, hadal_asset_favicon_end)},
      {"/web/style.css", kCss, between(hadal_asset_style, hadal_asset_style_end)},
      {"/web/chat.js", kJs, between(hadal_asset_chat, hadal_asset_chat_end)},
      {"/web/engine.js", kJs, between(hadal_asset_engine, hadal_asset_engine_end)},
      {"/web/dygraph.min.js", kJs, between(hadal_asset_dygraph_js, hadal_asset_dygraph_js_end)},
      {"/web/dygraph.css", kCss, between(hadal_asset_dygraph_css, hadal_asset_dygraph_css_end)},
      {"/web/marked.min.js", kJs, between(hadal_asset_marked, hadal_asset_marked_end)},
      {"/web/purify.min.js", kJs, between(hadal_asset_purify, hadal_asset_purify_end)},
  };
  return all;
}

std::string_view openapi_text() {
  return between(hadal_asset_openapi, hadal_asset_openapi_end);
}

}  // namespace hadal::admin

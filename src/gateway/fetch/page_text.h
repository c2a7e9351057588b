#pragma once

#include <string>
#include <string_view>

namespace hadal::fetch {

// A page as text for a model.
struct PageText {
  std::string title;
  std::string text;
};

// The words of an HTML page: no tags, scripts, styles; blocks on lines of their own; character
// references undone; white space as in running text. Linear in the page; never fails: what is no
// HTML comes out as it is. Not a renderer: nothing hidden by a style sheet is left out.
PageText html_to_text(std::string_view html);

}  // namespace hadal::fetch

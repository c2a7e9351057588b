#include "gateway/fetch/page_text.h"

#include <gtest/gtest.h>

namespace hadal::fetch {
namespace {

TEST(PageText, WordsWithoutMarkup) {
  const PageText page = html_to_text(
      "<!DOCTYPE html><html><head><title>A &amp; B</title><style>p{color:red}</style></head><body>"
      "<!-- no <b>comment</b> --><h1>Tides</h1><p>High  water\n at <b>7</b>&nbsp;am &#8211; twice."
      "<script>if (1 < 2) alert('</p>')</script></p><ul><li>one<li>two</ul>"
      "<a href=\"x>y\">link</a> 2 < 3 &unknown; &#x41;</body></html>");
  EXPECT_EQ(page.title, "A & B");
  EXPECT_EQ(page.text,
            "Tides\nHigh water at 7 am \xE2\x80\x93 twice.\none\ntwo\nlink 2 < 3 &unknown; A");
}

TEST(PageText, BrokenPagesEnd) {
  for (const char* html : {"", "<", "</", "<a", "<!--", "<script>x", "&", "&#", "&#99999999;",
                           "a<b", "<a href='", "</script"}) {
    html_to_text(html);
  }
  EXPECT_EQ(html_to_text("plain text, 1 < 2").text, "plain text, 1 < 2");
}

}  // namespace
}  // namespace hadal::fetch

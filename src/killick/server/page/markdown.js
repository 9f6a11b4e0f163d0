// What a model says is hostile until it is clean: no raw HTML, no images from elsewhere, no scripts.

import { Marked } from "./vendor/marked.js";
import DOMPurify from "./vendor/dompurify.js";
import { highlight } from "./highlight.js";

const escape = (text) => text.replace(/[&<>"']/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[one]);

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    code: ({ text, lang }) => {
      const name = (lang || "").split(/\s/)[0].slice(0, 24);
      return `<figure class="block"><header><span>${escape(name || "text")}</span><button type="button" data-copy>Copy</button></header><pre><code>${highlight(text, escape)}</code></pre></figure>`;
    },
  },
});

const purifier = DOMPurify(window);
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
});

const ALLOWED = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "button", "code", "del", "em", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "i", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["href", "class", "type", "data-copy", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ["type", "data-copy", "start", "align"],
  ALLOW_DATA_ATTR: false,
};

export function render(text) {
  return purifier.sanitize(marked.parse(text), ALLOWED);
}

// A little colour for code of any language: comments, strings, numbers and the usual words.

const WORDS = new Set("abstract and as assert async await bool break case catch char class const continue def default del do double elif else enum except export extends false final finally float fn for from func function global if impl implements import in instanceof int interface is lambda let long loop match mod module mut namespace new nil none not null of or package pass private protected pub public raise ref return self short static str string struct super switch template this throw throws trait true try type typeof use using var virtual void volatile when where while with yield select insert update delete create table echo then fi done esac local None True False".split(" "));

const TOKEN = /(\/\*[\s\S]*?\*\/|\/\/[^\n]*|(?:^|(?<=\s))#[^\n]*|--\s[^\n]*|<!--[\s\S]*?-->)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|\b(\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?|0x[\da-f]+)\b|\b([A-Za-z_]\w*)\b/gim;

export function highlight(text, escape) {
  if (text.length > 20000) return escape(text);
  let html = "";
  let last = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [whole, comment, string, number, word] = found;
    const kind = comment ? "t-c" : string ? "t-s" : number ? "t-n" : WORDS.has(word) ? "t-k" : "";
    html += escape(text.slice(last, found.index));
    html += kind ? `<span class="${kind}">${escape(whole)}</span>` : escape(whole);
    last = found.index + whole.length;
  }
  return html + escape(text.slice(last));
}

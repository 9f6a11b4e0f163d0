// Asks for what the first screen shows while the rest of the page is still on its way. api.js takes the answers.

const secret = /[#&]token=([^&]+)/.exec(location.hash)?.[1];
const token = secret ? decodeURIComponent(secret) : sessionStorage.getItem("killick-token");
const session = /^\/s\/([^/?]+)$/.exec(location.pathname)?.[1];
const since = /[?&]at=(\d+)/.exec(location.search)?.[1];
const paths = ["/api/about"];
if (session) paths.unshift(`/api/sessions/${session}/transcript?last=60&text=65536${since ? `&since=${since}` : ""}`, `/api/sessions/${session}`);
const headers = token ? { Authorization: `Bearer ${token}` } : {};
globalThis.killickFirst = new Map(paths.map((path) => [path, fetch(path, { headers })]));
for (const answer of globalThis.killickFirst.values()) answer.catch(() => {});

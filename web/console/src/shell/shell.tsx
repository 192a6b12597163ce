// The frame of every page: bar, navigation, the page itself, help.

import { useEffect, useRef, useState } from "preact/hooks";
import { token, tokenWanted } from "../api/token";
import { Sign } from "../parts/badge";
import { Dialog } from "../parts/dialog";
import { age } from "../parts/format";
import { TokenForm } from "../parts/states";
import { connection, STALE_AFTER_MS, useTopic } from "../state/live";
import { useNow } from "../state/clock";
import { setTheme, theme, type Theme } from "../state/theme";
import { useStore } from "../state/store";
import { usePlace } from "../state/url";
import { Boundary } from "./boundary";
import { KEYS, useKeys } from "./keys";
import { pageOf, PAGES, type Page } from "./pages";
import { Search } from "./search";
import { Unreachable } from "./unreachable";

const NEXT_THEME: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const THEME_WORDS: Record<Theme, string> = { auto: "as the system", light: "light", dark: "dark" };

export function Shell() {
  const [isHelp, setHelp] = useState(false);
  const [isMenu, setMenu] = useState(false);
  const { path } = usePlace();
  const page = pageOf(path);
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  const changeTheme = () => setTheme(NEXT_THEME[theme.get()]);
  useKeys({
    help: () => setHelp(true),
    search: () => document.getElementById("search")?.focus(),
    theme: changeTheme,
  });
  useEffect(() => {
    document.title = `${page?.name ?? "Not found"} – Cell`;
    setMenu(false);
    if (!isFirst.current) {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    isFirst.current = false;
  }, [path]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the page</a>
      <TopBar onMenu={() => setMenu(true)} onHelp={() => setHelp(true)} onTheme={changeTheme} />
      <Navigation here={page} />
      <main class="main" id="main" tabIndex={-1} ref={main}>
        <Unreachable />
        <WantedToken />
        {page ? <Boundary key={page.path}><page.view /></Boundary> : <NotFound path={path} />}
      </main>
      {isHelp && <KeyHelp onClose={() => setHelp(false)} />}
      {isMenu && <Dialog title="Pages" isDrawer onClose={() => setMenu(false)}><Navigation here={page} onFollow={() => setMenu(false)} /></Dialog>}
    </div>
  );
}

function TopBar({ onMenu, onHelp, onTheme }: { onMenu(): void; onHelp(): void; onTheme(): void }) {
  const shown = useStore(theme);
  const secret = useStore({ get: token.get, set: () => {}, subscribe: token.subscribe });
  return (
    <header class="topbar">
      <button class="button button-quiet topbar-menu" type="button" aria-label="Pages" onClick={onMenu}>☰</button>
      <a class="brand" href="/console/overview"><Logo />Cell</a>
      <Standing />
      <span class="topbar-space" />
      <Search />
      <LiveSign />
      {secret && <button class="button button-quiet only-wide" type="button" onClick={() => token.set(null)}>Forget token</button>}
      <button class="button button-quiet" type="button" onClick={onTheme} aria-label={`Colours: ${THEME_WORDS[shown]}. Change`} title={`Colours: ${THEME_WORDS[shown]}`}>
        <span aria-hidden="true">{shown === "auto" ? "◐" : shown === "light" ? "○" : "●"}</span>
      </button>
      <button class="button button-quiet only-wide" type="button" onClick={onHelp} aria-label="Keys" title="Keys">?</button>
    </header>
  );
}

const Logo = () => (
  <svg viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="6" fill="var(--accent)" />
    <path d="M6 8h20v5H6zM6 15h9v4H6zM17 15h9v4h-9zM6 21h4v4H6zM12 21h3v4h-3zM17 21h9v4h-9z" fill="var(--surface)" />
  </svg>
);

/** The verdict in a word, on every page. */
function Standing() {
  const status = useTopic("status");
  if (!status.data) return null;
  const { verdict, answered_by } = status.data;
  if (status.isStale) {
    return (
      <span class="topbar-status">
        <Sign level="unknown" />
        <span class="unseen">unknown.</span>
        <span class="verdict-short">Not known now: the newest figures are from {age(status.ageMs)}</span>
      </span>
    );
  }
  return (
    <span class="topbar-status">
      <Sign level={verdict.level} />
      <span class="unseen">{verdict.level}.</span>
      <span class="verdict-short">{verdict.sentence}</span>
      <span class="only-wide">node {answered_by} answers</span>
    </span>
  );
}

function LiveSign() {
  const { isOpen, heardAt } = useStore(connection);
  const now = useNow();
  const isLive = isOpen && heardAt !== null && now - heardAt <= STALE_AFTER_MS;
  const words = isLive ? "live" : heardAt === null ? "connecting" : `silent, heard ${age(now - heardAt)}`;
  return (
    <span class={isLive ? "live" : "live live-off"} title={words}>
      <span class="live-dot" aria-hidden="true" />
      <span class="live-words">{words}</span>
    </span>
  );
}

function Navigation({ here, onFollow }: { here: Page | null; onFollow?(): void }) {
  return (
    <nav class="nav" aria-label="Pages">
      {PAGES.map((page) => (
        <a key={page.path} href={page.path} aria-current={page === here ? "page" : undefined} onClick={onFollow}>
          {page.name}
          <span class="keys" aria-hidden="true">g {page.letter}</span>
        </a>
      ))}
    </nav>
  );
}

function WantedToken() {
  const isWanted = useStore(tokenWanted);
  return isWanted ? <TokenForm /> : null;
}

function NotFound({ path }: { path: string }) {
  return (
    <div class="page">
      <h1>There is no page {path}</h1>
      <p><a href="/console/overview">Go to the overview</a></p>
    </div>
  );
}

function KeyHelp({ onClose }: { onClose(): void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys-list">
        {KEYS.map(([key, words]) => [<dt key={key}><kbd>{key}</kbd></dt>, <dd key={words}>{words}</dd>])}
        {PAGES.map((page) => [
          <dt key={page.letter}><kbd>g</kbd> <kbd>{page.letter}</kbd></dt>, <dd key={page.path}>{page.name}</dd>,
        ])}
      </dl>
      <p class="quiet">On the Tree page: arrows move over the meganodes, Enter opens one, <kbd>+</kbd> and <kbd>-</kbd> zoom.</p>
    </Dialog>
  );
}

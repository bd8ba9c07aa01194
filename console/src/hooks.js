// Hooks that keep components up to date, and other shared hooks.

import { useEffect, useRef, useState } from "preact/hooks";

import { live, watch } from "./live.js";

/** The state of the console; the component renders again when it changes. */
export function useLive() {
  const [, again] = useState(0);
  useEffect(() => watch(() => again((n) => n + 1)), []);
  return live;
}

/** Whether a media query matches. */
export function useMedia(query) {
  const [holds, set] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const heard = () => set(media.matches);
    heard();
    media.addEventListener("change", heard);
    return () => media.removeEventListener("change", heard);
  }, [query]);
  return holds;
}

/** Calls `ask` now, every `every_ms` while the component is mounted, and when one of `what` changes. */
export function useEvery(every_ms, ask, what) {
  useEffect(() => {
    let timer = 0;
    let over = false;
    const go = async () => {
      await ask(() => over);
      if (!over) timer = setTimeout(go, every_ms);
    };
    go();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, what);
}

/** Sets the title of the page, and focuses its heading after navigation from another page. */
export function usePage(title) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · Weir`;
  }, [title]);
  useEffect(() => {
    if (arrivals++ > 0) heading.current?.focus({ preventScroll: true });
  }, []);
  return heading;
}
let arrivals = 0;

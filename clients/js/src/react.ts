// A place as a React hook. React is a peer of this package, not a dependency.

import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { wait, type Options, type Place, type State } from "./index.js";

/** The state of a place, and what a user can do with it. The functions stay the same between renders of one place. */
export interface UsedPlace {
  /** `null` before the first effect, such as on a server. */
  state: State | null;
  /** Takes a new place at the end of the line, after `entered`, `ended` or `left`. */
  anew: () => void;
  /** Gives up the place, or ends the visit. */
  leave: () => void;
}

const NOTHING = () => () => {};

/**
 * Keeps a place for as long as the component is mounted. Another `server` or `zone` is another place. The place of an unmounted component
 * stays for the zone's `idle_timeout_s`, and where there is a storage, the next component finds it.
 * `platform` is read when the place begins.
 */
export function usePlace({ server, zone, platform }: Options): UsedPlace {
  const [begun, setBegun] = useState<{ place: Place; server: string; zone: string } | null>(null);
  useEffect(() => {
    const place = wait({ server, zone, ...(platform && { platform }) });
    setBegun({ place, server, zone });
    return () => place.stop();
    // The platform is an object that callers often make anew for each render. It is no other place.
  }, [server, zone]);
  // The first render for another zone comes before its effect. The place of the zone before is not shown as one of this zone.
  const place = begun?.server === server && begun.zone === zone ? begun.place : null;
  const subscribe = useCallback((listener: () => void) => place?.subscribe(listener) ?? NOTHING(), [place]);
  const state = useSyncExternalStore(subscribe, () => place?.state ?? null, () => null);
  const anew = useCallback(() => place?.anew(), [place]);
  const leave = useCallback(() => place?.leave(), [place]);
  return { state, anew, leave };
}

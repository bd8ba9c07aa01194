// The platform of React Native. The app passes its own modules in, so this package depends on none of them.
//
// In the background the system stops an app's timers, at once or after some seconds. The place is silent then, and kept for the zone's
// `idle_timeout_s`. When the app is in front again, a poll that is due is sent at once.

import { node } from "./node.js";
import type { Platform } from "./platform.js";

/** `AppState` of react-native. */
export interface AppState {
  addEventListener(type: "change", hear: (state: string) => void): { remove(): void };
}

/** `AsyncStorage` of @react-native-async-storage/async-storage, or anything like it. */
export interface AsyncStorage {
  getItem(key: string): Promise<string | null>;
  setItem(key: string, value: string): Promise<void>;
  removeItem(key: string): Promise<void>;
}

/** This app. Without `storage`, a place lasts until the system ends the app. */
export function native(appState: AppState, storage: AsyncStorage | null = null): Platform {
  const kept = storage && {
    get: (key: string) => storage.getItem(key),
    set: (key: string, value: string) => storage.setItem(key, value),
    remove: (key: string) => storage.removeItem(key),
  };
  return {
    ...node(kept),
    signals(hear) {
      const subscription = appState.addEventListener("change", (state) => {
        // There is no separate news of the network. Whoever opens the app again may have one.
        if (state === "active") ["shown" as const, "online" as const].forEach(hear);
      });
      return () => subscription.remove();
    },
  };
}

package passes

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// most is how many passes one process remembers: some minutes' worth.
const most = 1_000_000

// memory is a record of spent passes in this process. It knows nothing of other processes, and forgets all when the process ends.
type memory struct {
	now   func() time.Time
	most  int
	mutex sync.Mutex
	spent map[string]time.Time
	// look is when to look for what has expired: not before something has, and once in a second at most. A look goes through all.
	look time.Time
}

func newMemory(now func() time.Time, most int) *memory {
	return &memory{now: now, most: most, spent: map[string]time.Time{}}
}

func (m *memory) spend(_ context.Context, key string, until time.Time) (bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if now := m.now(); len(m.spent) >= m.most && m.look.Before(now) {
		soonest := time.Time{}
		for known, end := range m.spent {
			if end.Before(now) {
				delete(m.spent, known)
			} else if soonest.IsZero() || end.Before(soonest) {
				soonest = end
			}
		}
		m.look = now.Add(time.Second)
		if soonest.After(m.look) {
			m.look = soonest
		}
	}
	if _, isKnown := m.spent[key]; isKnown {
		return false, nil
	}
	if len(m.spent) >= m.most {
		return false, fmt.Errorf("%d passes are remembered already", m.most)
	}
	if len(m.spent) == 0 || until.Before(m.look) {
		m.look = until
	}
	m.spent[key] = until
	return true, nil
}

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
}

func newMemory(now func() time.Time, most int) *memory {
	return &memory{now: now, most: most, spent: map[string]time.Time{}}
}

func (m *memory) spend(_ context.Context, key string, until time.Time) (bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if len(m.spent) >= m.most {
		for known, end := range m.spent {
			if end.Before(m.now()) {
				delete(m.spent, known)
			}
		}
	}
	if _, isKnown := m.spent[key]; isKnown {
		return false, nil
	}
	if len(m.spent) >= m.most {
		return false, fmt.Errorf("%d passes are remembered already", m.most)
	}
	m.spent[key] = until
	return true, nil
}

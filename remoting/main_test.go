package remoting

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// gnet starts the goroutines of its worker pool when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

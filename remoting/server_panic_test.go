package remoting

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/haengine/haengine/engine"
)

func TestAHandlerThatPanicsAnswersAndIsSeen(t *testing.T) {
	logger, log := testLogger(t)
	var table map[string]int
	s := listen(t, HandlerFunc(func(r *Request) {
		if r.Code == 1 {
			table["nobody made it"]++
		}
		r.ReplyCode(Success, "")
	}), ServerOptions{Logger: logger, panics: 2})
	c := dial(t, s, nil)
	if a := ask(t, c, &Command{Code: 1}); a.Code != SystemError || !strings.Contains(a.Remark, "nil map") {
		t.Errorf("answer %d %q", a.Code, a.Remark)
	}
	if err := c.Push(&Command{Code: 1}); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, c, &Command{Code: 2}); a.Code != Success {
		t.Errorf("afterwards the same client is answered %d %q", a.Code, a.Remark)
	}
	if n := s.Count(HandlerPanicked); n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
	if !strings.Contains(log.String(), "server_panic_test.go") || !strings.Contains(log.String(), "code=1") {
		t.Errorf("the log does not tell where:\n%s", log)
	}
}

const panicsInLog = "REMOTING_TEST_PANICS_IN_LOG"

// The log's state is in doubt then: the process has to end.
func TestAPanicOfTheLogIsNotOutlived(t *testing.T) {
	if os.Getenv(panicsInLog) != "" {
		s := listen(t, HandlerFunc(func(*Request) {
			var e *engine.Engine
			e.QueueBounds("T", 0)
		}), ServerOptions{})
		ask(t, dial(t, s, nil), &Command{})
		return
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), panicsInLog+"=1")
	out, err := child.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("panic:")) || !bytes.Contains(out, []byte("QueueBounds")) {
		t.Errorf("it ended with %v:\n%s", err, out)
	}
}

package remoting

import "testing"

// Who answers may be done with a request before its handler has returned, which a
// panic makes look at it once more.
func TestARequestIsNotUsedAgainWhileItsHandlerRuns(t *testing.T) {
	s := listen(t, HandlerFunc(func(r *Request) {
		code, over := r.Code, make(chan struct{})
		go func() {
			defer close(over)
			r.ReplyCode(Success, "")
			r.done()
		}()
		<-over
		if r.Code != code || r.Ext.Text("a") != "b" {
			t.Errorf("the request is %+v", r.Command)
		}
	}), ServerOptions{Loops: 1})
	c := dial(t, s, nil)
	for i := range 100 {
		ask(t, c, &Command{Code: int32(i + 1), Ext: Ext{{"a", "b"}}})
	}
}

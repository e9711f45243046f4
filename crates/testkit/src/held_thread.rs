//! Stops one thread of a process with a tracer, while all others run.

use std::fs;
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A stopped thread. Dropping the value resumes it.
#[derive(Debug)]
pub struct HeldThread {
    /// Dropped to resume the thread.
    release: Option<mpsc::Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl HeldThread {
    /// Stops the thread of this name.
    ///
    /// # Errors
    /// The kernel's error, where tracing is not allowed.
    ///
    /// # Panics
    /// If the process has no such thread.
    pub fn hold(process: u32, name: &str) -> Result<HeldThread, Errno> {
        let thread = thread_id(process, name);
        let (release, released) = mpsc::channel::<()>();
        let (stopped, is_stopped) = mpsc::channel();
        // Only the tracing thread may detach.
        let tracer = std::thread::spawn(move || {
            let held = stop(thread);
            let is_held = held.is_ok();
            stopped.send(held).unwrap();
            if is_held {
                let _ = released.recv();
                // The process may have ended.
                let _ = ptrace::detach(thread, None);
            }
        });
        is_stopped.recv().unwrap()?;
        Ok(HeldThread {
            release: Some(release),
            tracer: Some(tracer),
        })
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

fn stop(thread: Pid) -> Result<(), Errno> {
    ptrace::seize(thread, Options::empty())?;
    ptrace::interrupt(thread)?;
    waitpid(thread, Some(WaitPidFlag::__WALL))?;
    Ok(())
}

fn thread_id(process: u32, name: &str) -> Pid {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    for thread in threads {
        let path = thread.unwrap().path();
        if fs::read_to_string(path.join("comm")).unwrap().trim() == name {
            let id = path.file_name().unwrap().to_str().unwrap();
            return Pid::from_raw(id.parse().unwrap());
        }
    }
    panic!("process {process} has no thread {name}");
}

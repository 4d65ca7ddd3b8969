import { createRouter, createWebHistory } from 'vue-router'
import NotFoundView from './views/not-found-view.vue'
import RunListView from './views/run-list-view.vue'
import RunView from './views/run-view.vue'
import ToolCallView from './views/tool-call-view.vue'

export const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: '/', name: 'runs', component: RunListView },
    { path: '/runs/:rootPlanId', name: 'run', component: RunView, props: true },
    {
      path: '/tool-calls/:toolCallId',
      name: 'toolCall',
      component: ToolCallView,
      props: true,
    },
    { path: '/:path(.*)*', name: 'notFound', component: NotFoundView, props: { what: 'page' } },
  ],
})

import { createRouter, createWebHistory } from 'vue-router'
import CompareView from './views/compare-view.vue'
import ComparePicksView from './views/compare-picks-view.vue'
import NotFoundView from './views/not-found-view.vue'
import RunListView from './views/run-list-view.vue'
import RunView from './views/run-view.vue'
import SignInView from './views/sign-in-view.vue'
import ToolCallView from './views/tool-call-view.vue'
import ToolsView from './views/tools-view.vue'

export const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: '/', name: 'runs', component: RunListView },
    { path: '/runs/:rootPlanId', name: 'run', component: RunView, props: true },
    { path: '/sign-in', name: 'signIn', component: SignInView },
    { path: '/tools', name: 'tools', component: ToolsView },
    { path: '/compare/:left', name: 'comparePicks', component: ComparePicksView, props: true },
    { path: '/compare/:left/:right', name: 'compare', component: CompareView, props: true },
    {
      path: '/tool-calls/:toolCallId',
      name: 'toolCall',
      component: ToolCallView,
      props: true,
    },
    { path: '/:path(.*)*', name: 'notFound', component: NotFoundView, props: { what: 'page' } },
  ],
})
